"""The table over submissions: a row for each file that their term asks of each."""

from warpbook.runs.schema import Column, Range, Table

COUNT = Range(0)

GRADES = Table(
    "grades.csv",
    "one file of one submission, or, without a number, a submission of which there is no report",
    ("submission", "number"),
    {
        "submission": Column("string", "name of the submission: its folder's"),
        "term": Column("string", "study of the term, as sp25"),
        "number": Column("string", "number of the optimization, or final, or the baseline: basic, unroll, fused"),
        "title": Column("string", "what that is"),
        "file": Column("string", "path from the submission's folder; empty where there is none"),
        "builds": Column("string", "yes, no, or empty: not tried"),
        "verdict": Column(
            "string", "right, wrong, fails, does not end, does not compile, not taken, not judged, no file, no report"
        ),
        "place": Column("string", "file and line of the fault, where it has one"),
        "words": Column("string", "why it is not right, or what it assumes"),
        "possible": Column("Int64", "points of the optimization", COUNT),
        "claimed": Column("Int64", "points for the code that is there", COUNT),
        "rule": Column("string", "what a rule says of the claim"),
        "person": Column("string", "what is left to a person"),
        "op_ms": Column("float64", "op times of all layers at the largest size; empty: not measured", COUNT),
        "device": Column("string", "the GPU that they were measured on; empty: not measured"),
        "printed_op_ms": Column(
            "float64", "the same by the output of the course's program that the submission brings; empty: none", COUNT
        ),
        "pages": Column("string", "pages of the submission's report that it is on"),
    },
    for_people=True,
)
"""A file of its own, in no run."""
