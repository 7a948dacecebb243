"""The run that figures are of where the study's own GPU run holds none of them."""

from warpbook.report.evidence import Evidence
from warpbook.runs.schema import Table


def run_sentence(ev: Evidence, table: Table) -> str:
    """To follow a caption: the older run that a table's figures are of; empty where they are of the study's own."""
    run = ev.selection.from_older_run.get(table)
    own = ev.gpu_run.run_id if ev.gpu_run else ""
    return f" Of the older run {run.run_id}; the run {own} holds none." if run else ""


def within_sentence(ev: Evidence, table: Table) -> str:
    """The same within a sentence: in the run …."""
    run = ev.selection.from_older_run.get(table)
    return f" in the run {run.run_id}" if run else ""
