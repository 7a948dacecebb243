"""What the tests of a variant decide: whether it may be measured."""

from collections.abc import Iterable, Mapping
from typing import Any


def first_failure(correctness: Iterable[Mapping[Any, Any]]) -> dict[str, str] | None:
    """status and reason of the first test that failed in rows of CORRECTNESS; None where a variant may be measured.

    A layer that the variant does not support is no failure of it.
    """
    for row in correctness:
        if not row["ok"] and row["status"] != "unsupported":
            return {"status": row["status"], "reason": row["reason"]}
    return None
