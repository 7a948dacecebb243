"""How much is measured in a test: enough samples for a median, and no machine too busy for it."""

from warpbook.config.settings import Measuring, ProgramRuns, SeriesPolicy

QUICK = SeriesPolicy(warmup=1, min_samples=6, max_samples=12, max_time_s=0.2, min_samples_timeout_s=1)
MEASURING = Measuring(
    target_rel_ci=0.05,
    equivalence_margin=0.01,
    gpu=QUICK,
    cpu=QUICK,
    programs=ProgramRuns(runs=1, min_samples_timeout_s=1),
    timeout_s=10,
    tolerated_load=1000,
)
