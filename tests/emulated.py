"""Kernels emulated for a test: checked in this process, and with faults planted in them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import check_variant
from warpbook.common.files import scratch_folder
from warpbook.harness import checking
from warpbook.kernels import variants
from warpbook.problems import case_sets
from warpbook.runs.schema import Row

SIZE = 64
"""The size that a study's cases are emulated at where no extent is one: each needs one."""
FAULT = "PLANTED_FAULT"
"""The variable of the environment that says by its number which planted fault is there; none without it."""


def checked(folder: Path, name: str, cases: str = "fa17", wrong: bool = False) -> list[Row]:
    """The rows that emulating a folder's variant gives on ragged shapes and on the cases of a network or study, as
    check_variant.py makes them. Of one of CUDA that is to be `wrong`, up to those of the first case that is: it is
    compiled for data races only if none is."""
    variant, network = variants.read(name, folder), case_sets.find(cases)
    size = 1 if network.problem.facts.size else SIZE
    with scratch_folder() as built:
        if wrong:
            ragged = checking.ragged_cases(variant)
            rows: list[Row] = []
            for its in check_variant.emulate_cases(variant, network, ragged, False, built, size):
                rows += its
                if reasons(its):
                    return rows
        return [row for rows in check_variant.emulate(variant, network, False, built, size) for row in rows]


def reasons(rows: Iterable[Row]) -> list[str]:
    """Why rows failed; an unsupported layer is no failure."""
    return [row["reason"] for row in rows if not row["ok"] and row["status"] != "unsupported"]


@dataclass(frozen=True)
class Fault:
    """`old` of a source replaced by `new`, and the words of the check that must see it.

    Both are whole statements or whole expressions, and either stands in the library, chosen as it runs. Anything else
    says in `new` where the choice is made: PLANTED there is true where the fault is wanted.
    """

    old: str
    new: str
    seen: str = ""


def plant(texts: dict[str, str], faults: Sequence[Fault]) -> dict[str, str]:
    """Source texts by file name with each fault in those that hold its `old`; the first fault has number 1."""
    numbered = defaultdict(list)
    for number, fault in enumerate(faults, 1):
        numbered[fault.old].append((number, fault.new))
    for old, changes in numbered.items():
        assert any(old in text for text in texts.values()), f"no file of {[*texts]} holds {old!r}"
        for name, text in texts.items():
            texts = {**texts, name: text.replace(old, _choice(old, changes, name))}
    return {name: _with_number(text) if name.endswith(".cu") else text for name, text in texts.items()}


def _choice(old: str, changes: list[tuple[int, str]], file: str) -> str:
    made = old
    for number, new in changes:
        if "PLANTED" in new:
            assert len(changes) == 1, f"two faults in {old!r}, and one says where the choice is made"
            made = re.sub(r"\bPLANTED\b", _is_there(number, file), new)
        elif old.endswith(";"):
            made = f"{{ if ({_is_there(number, file)}) {{ {new} }} else {{ {made} }} }}"
        else:
            made = f"({_is_there(number, file)} ? ({new}) : ({made}))"
    return made


def _is_there(number: int, file: str) -> str:
    if file.endswith(".py"):
        return f'(__import__("os").environ.get("{FAULT}") == "{number}")'
    return f"(planted_fault == {number})"


def _with_number(text: str) -> str:
    """A source that knows the number of the fault that is wanted; every line stays in its place."""
    header, end, code = text.partition("*/")
    return f'{header}{end} static const int planted_fault = getenv("{FAULT}") ? atoi(getenv("{FAULT}")) : 0;{code}'
