"""A submission's rows of GRADES as the results.json that Gradescope reads."""

import json
from collections.abc import Sequence
from typing import Any

from warpbook.config.course_term import Term, sum_points

NAME = "results.json"
PASSED = "right"


def results_json(rows: Sequence[dict[str, Any]], term: Term) -> str:
    """A test for each row. Its score is the points of an optimization whose file is right and holds the words asked
    for; the submission's is their sum. Points that a person gives are in none."""
    scores = {row["number"]: _score(row, term) for row in rows if row["possible"] is not None}
    return json.dumps(
        {
            "score": float(sum_points(term, scores)),
            "output": "Points for times and answers are given by a person.",
            "output_format": "text",
            "test_output_format": "text",
            "test_name_format": "text",
            "visibility": "visible",
            "stdout_visibility": "hidden",
            "tests": [_test(row, scores) for row in rows],
        },
        indent=1,
    )


def _score(row: dict[str, Any], term: Term) -> int:
    words = term.optimizations[row["number"]].code_must_contain
    shown = all(f"{word} in line " in row["rule"] for word in words)
    return int(row["claimed"] or 0) if row["verdict"] == PASSED and shown else 0


def _test(row: dict[str, Any], scores: dict[str, int]) -> dict[str, Any]:
    number = row["number"]
    said = [
        f"{row['verdict']}{f', {place}' if (place := row['place'] or row['file']) else ''}",
        row["words"],
        f"By rule: {row['rule']}" if row["rule"] and row["rule"] != row["verdict"] else "",
        f"Left to a person: {row['person']}" if row["person"] else "",
    ]
    test = {
        "name": f"{number}: {row['title']}" if number else row["submission"],
        "score": float(scores.get(number, 0)),
        "max_score": float(row["possible"] or 0),
        "output": "\n".join(filter(None, said)),
        "visibility": "visible",
    }
    # A file that was not judged has neither passed nor failed.
    return (
        test
        if row["verdict"] == "not judged"
        else {**test, "status": "passed" if row["verdict"] == PASSED else "failed"}
    )
