"""The configuration and its plan, this Snakemake's jobs, and what each job is asked for."""

import atexit
import gc
import json
import os
import re
import sys
from pathlib import Path

# The project is the folder that Snakemake runs in; the code is this workflow's, or the package that it came with.
os.environ.update(WARPBOOK_PROJECT=os.getcwd())
# Images for containers set it: each of the many short jobs would compile its modules again, for a second or more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.path.insert(0, str(Path(workflow.basedir, "scripts")))
from warpbook.common import parent_process, text_encoding
from warpbook.common.errors import UserError, one_screen
from warpbook.common.quick_yaml import load_configuration
from warpbook.course import reference_times, submissions
from warpbook.harness import sandbox
from warpbook.kernels import variants
from warpbook.machine import available_profilers, gpu_pool, host, locks
from warpbook.problems import case_sets, networks
from warpbook.profiling import counters
from warpbook.runs import catalog, tables
from warpbook.workflow import code_dependencies, console, optional_measurements, plan
from warpbook.workflow.targets import Targets, WholeNetworks, rendered_reports, site_templates

text_encoding.require_utf8()

# What is read here stays: looking through it for garbage again and again would take a tenth of the time, and once more at
# the end a fifth of a command that has nothing to do.
gc.set_threshold(100_000)
atexit.register(gc.freeze)


if found := {*os.getcwd()} & {*"{}:"}:  # the first two are Snakemake's, the last one's the PATH's
    sys.exit(
        f"error: the project's path holds {' '.join(sorted(found))}, which Snakemake or the PATH takes for its own; "
        f"move the project: {os.getcwd()}"
    )
try:
    workflow.configfile("config.yaml")
except WorkflowError as error:
    try:
        load_configuration(Path("config.yaml"))
    except UserError as fault:  # which names the line
        sys.exit(f"error: {fault}")
    sys.exit(f"error: config.yaml cannot be read: {error}")

if workflow.is_main_process:
    console.install(lambda: [file for job in workflow.dag.targetjobs for file in job.output or job.input])

# The programs read the networks and studies of config.yaml, or what the command line set over them.
config = networks.with_library(config)
os.environ[networks.CONFIGURATION_VARIABLE] = json.dumps(
    {"networks": config.get("networks", {}), "studies": case_sets.with_cases(config.get("studies", {}))}
)
try:
    PLAN = plan.from_config(config)
    CONFIG = PLAN.config
    PLAN.gpu_sources
    GPUS = PLAN.gpus
    SUBMITTED = submissions.submissions_by_name(CONFIG)
    if CONFIG.submissions:
        sandbox.require_for_untrusted(CONFIG.sandbox, "gpu" if PLAN.device else "emulator")
        if workflow.is_main_process:
            submissions.forget_failures(CONFIG.study, SUBMITTED)
    # Jobs read no ONNX file for the networks' shapes, and in a sandbox could not.
    os.environ[networks.CONFIGURATION_VARIABLE] = networks.resolved_configuration()
except UserError as error:
    sys.exit(f"error: {one_screen(error)}")
if workflow.is_main_process and not SUBMITTED and {"grade", "submission"} & {*sys.argv}:
    sys.exit(f"error: {submissions.NOT_NAMED}")
TARGETS, WHOLE = Targets(PLAN), WholeNetworks(PLAN)
COURSE_FILES = [name for name, variant in PLAN.variants.items() if variant.course]

# The jobs' `python3` is that of this Snakemake, whether or not its environment is activated, and they end with it.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]))
os.environ[parent_process.SNAKEMAKE] = str(os.getpid())
os.environ[host.TARGET] = json.dumps(PLAN.remote_target and PLAN.remote_target.model_dump())
os.environ[gpu_pool.GPUS] = str(GPUS)
host.share_with_jobs([] if PLAN.remote_target or not PLAN.device else [PLAN.device, *PLAN.other_devices])

# A measurement holds the machine's measuring lock, or that of one of several GPUs. On a GPU, and with cores to spare, the
# next job may start and load meanwhile, two where there are eight cores: loading takes as long as measuring. They wait at the
# lock. A timing of the CPU takes every core. The resource `measuring` counts jobs that measure or use the GPU; no cluster
# knows it, whereas `gpu` would be a request for one.
AT_ONCE = (3 if workflow.cores >= 8 * GPUS else 2) * GPUS
MEASURING_THREADS = {
    "cpu": workflow.cores,
    "gpu": workflow.cores if GPUS == 1 and workflow.cores < 4 else max(1, workflow.cores // AT_ONCE),
}
if "measuring" not in workflow.global_resources:
    workflow.register_resource("measuring", AT_ONCE)

# What Slurm is asked for besides cores: GPUs, and for timing a CPU the node alone. Jobs of one `group` are one
# allocation there; elsewhere these words mean nothing. The machine is described where it is measured.
GRES = {"cpu": "", "gpu": f"gpu:{GPUS}", "emulator": ""}
SLURM_EXTRA = {"cpu": "--exclusive", "gpu": "", "emulator": ""}
PROBED = "gpu" if PLAN.device else "cpu"

# Parameters called `rerun_on_...` are in no command: a part is made again when the device, an installed library or a
# table's columns change. Inputs called `modules` are the files that decide what a program makes, read from its imports.


def logged(command: str) -> str:
    """A command whose messages go to its log as well as to the console."""
    return f"{command} 2> >(tee {{log:q}} >&2)"


wildcard_constraints:
    network="|".join([*CONFIG.networks, *(name for name, study in CONFIG.studies.items() if study.problem)]),
    weights="[a-z]+",
    device="cpu|gpu|emulator",
    numbered=r"gpu(-\d+)?",
    number=r"(-\d+)?",
    size=r"\d+",
    tool="|".join(available_profilers.TRACERS),
    # Of another problem than conv, with its name before it. Whole networks and files of the course have rules of their own.
    variant=rf"(?!network/)(\w+/)?{variants.DISPLAYABLE_NAME}",
    course_file="|".join(map(re.escape, COURSE_FILES)) or "(?!)",
    implementation=r"\w+",
    study="|".join(CONFIG.studies),
    submission="[A-Za-z0-9_.-]+",
