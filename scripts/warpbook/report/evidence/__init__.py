"""What a report may claim: the figures of a study from the runs that it cites, those that no longer hold set aside. A
recorded figure is used only while the variant's sources, the compile options, the study's shapes and the measuring
policy are what they were. Everything else is listed with its reason, and is in no table, chart or headline."""

from warpbook.profiling.imported_tables import ImportedTables
from warpbook.report.evidence.check_results import BuildResults, CheckResults, CheckTally
from warpbook.report.evidence.claim_verdicts import ClaimVerdicts
from warpbook.report.evidence.counter_values import CounterValues
from warpbook.report.evidence.course_times import CourseTimes
from warpbook.report.evidence.measurement_validity import MeasurementValidity
from warpbook.report.evidence.missing_data import MissingData
from warpbook.report.evidence.network_times import NetworkTimes
from warpbook.report.evidence.profile_values import (
    API_KINDS,
    GPU_KINDS,
    KernelLaunches,
    ProfileRow,
    ProfileValues,
    ProgramTimes,
    StreamTimes,
    first_rows_covering,
    layer_events,
)
from warpbook.report.evidence.ranking import Ranking
from warpbook.report.evidence.run_selection import Selection
from warpbook.report.evidence.scope import Scope
from warpbook.report.evidence.submission_evidence import SubmissionEvidence
from warpbook.report.evidence.time_series import ABOUT, INCONCLUSIVE, NO_RATIO, STATE, Speedup, Times
from warpbook.runs.catalog import Run
from warpbook.workflow.plan import Plan

__all__ = [
    "ABOUT",
    "API_KINDS",
    "GPU_KINDS",
    "INCONCLUSIVE",
    "NO_RATIO",
    "STATE",
    "CheckTally",
    "Evidence",
    "KernelLaunches",
    "ProfileRow",
    "Speedup",
    "first_rows_covering",
    "layer_events",
    "load",
]


class Evidence(Scope):
    """The figures of one study, each kind with the one who knows it."""

    def __init__(self, plan: Plan, study: str, local: Run, imported: tuple[ImportedTables, ...] = ()):
        super().__init__(plan, study, local)
        self.imported = imported
        self.texts_left_out = ""  # why strangers' texts are left out
        self.selection = Selection(self)
        self.builds = BuildResults(self)
        self.checks = CheckResults(self)
        self.times = Times(self)
        self.course = CourseTimes(self)
        self.networks = NetworkTimes(self)
        self.problems = MissingData(self)
        self.programs = ProgramTimes(self)
        self.ranking = Ranking(self)
        self.profiles = ProfileValues(self)
        self.counters = CounterValues(self)
        self.claims = ClaimVerdicts(self)
        self.trust = MeasurementValidity(self)
        self.streams = StreamTimes(self)
        self.submitted = SubmissionEvidence(self)

    @property
    def cited_runs(self) -> list[Run]:
        """The runs that the report draws on: this machine's, that of the GPU's figures, and others that fill their gaps."""
        others = {run.run_id: run for run in self.selection.from_other_run.values() if run.run_id != self.local.run_id}
        on_gpu = [self.gpu_run] if self.gpu_run and self.gpu_run is not self.local else []
        return [self.local, *on_gpu, *others.values()]


def load(plan: Plan, study: str, local: Run, imported: tuple[ImportedTables, ...] = ()) -> Evidence:
    """The evidence of a study, and profiles imported for it; UserError where the local run is damaged."""
    return Evidence(plan, study, local.check_all(), imported)
