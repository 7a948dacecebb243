"""The table over submissions: a row for each file that their term asks of each."""

from warpbook.runs.schema import COUNT, Table, real, text, whole_or_none

GRADES = Table(
    "grades.csv",
    "one file of one submission, or, without a number, a submission of which there is no report",
    ("submission", "number"),
    {
        "submission": text("name of the submission: its folder's"),
        "term": text("study of the term, as sp25"),
        "number": text("number of the optimization, or final, or the baseline: basic, unroll, fused"),
        "title": text("what that is"),
        "file": text("path from the submission's folder; empty where there is none"),
        "builds": text("yes, no, or empty: not tried"),
        "verdict": text(
            "right, wrong, fails, does not end, does not compile, not taken, not judged, no file, no report"
        ),
        "place": text("file and line of the fault, where it has one"),
        "words": text("why it is not right, or what it assumes"),
        "possible": whole_or_none("points of the optimization", COUNT),
        "claimed": whole_or_none("points for the code that is there", COUNT),
        "rule": text("what a rule says of the claim"),
        "person": text("what is left to a person"),
        "op_ms": real("op times of all layers at the largest size; empty: not measured", COUNT),
        "device": text("the GPU that they were measured on; empty: not measured"),
        "printed_op_ms": real(
            "the same by the output of the course's program that the submission brings; empty: none", COUNT
        ),
        "pages": text("pages of the submission's report that it is on"),
    },
    for_people=True,
)
"""A file of its own, in no run."""
