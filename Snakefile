"""Warpbook: every kernel built, checked, timed and profiled, and the report of it.

    snakemake --cores 1 report      reports/out/<study>.pdf, <study>-supplement.pdf and <study>.html
    snakemake --cores 1 measure     this machine's run: results/run/
    snakemake --cores 1 archive     that run packed: reports/runs/<run_id>.zip
    snakemake --cores 1 check       correctness of every variant, nothing timed
    snakemake --cores 1 sanitize    every variant and whole network under compute-sanitizer
    snakemake --cores 1 count       hardware counters of every variant and whole network, with Nsight Compute
    snakemake --cores all stream    inference of a million images and more, over every GPU: results/stream/streams.csv
    snakemake --cores 1 compare --config base=<run> head=<run>      reports/out/compare.md and .pdf
    snakemake --cores 1 site        pages over all archived runs: reports/out/site/index.html
    snakemake --cores 1 track       archived runs logged to MLflow
    snakemake --cores 1 submission --config path=<folder> study=sp25          reports/out/sp25/<name>/
    snakemake --cores 1 grade --config submissions=<folder> study=sp25        the same of each, and reports/out/sp25-grades/

What is made is decided in scripts/warpbook/plan.py and targets.py, what a rule depends on in dependencies.py.
"""

import gc
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, "scripts")
from warpbook import built_in_times, console, dependencies, extras, locks, machine, networks, plan, profilers
from warpbook import runs, sharing, submissions, tables, variants
from warpbook import workflow as workflow_of_jobs  # `workflow` is Snakemake's
from warpbook.errors import UserError
from warpbook.harness import sandbox
from warpbook.profiling import counters
from warpbook.targets import Targets, WholeNetworks, rendered_reports, site_templates

# What is read here stays: looking through it for garbage again and again would take a tenth of the time.
gc.set_threshold(100_000)


configfile: "config.yaml"


if workflow.is_main_process:
    console.shorten(lambda: [file for job in workflow.dag.targetjobs for file in job.output or job.input])

# The programs read the networks of config.yaml, or what the command line set over them.
os.environ[networks.GIVEN] = json.dumps({"networks": config.get("networks", {})})
try:
    PLAN = plan.of(config)
    CONFIG = PLAN.config
    PLAN.gpu_sources
    GPUS = PLAN.gpus
    SUBMITTED = submissions.submitted(CONFIG)
    if CONFIG.submissions:
        sandbox.for_strangers(CONFIG.sandbox, "gpu" if PLAN.device else "emulator")
except UserError as error:
    sys.exit(f"error: {error}")
TARGETS, WHOLE = Targets(PLAN), WholeNetworks(PLAN)

# The jobs' `python3` is that of this Snakemake, whether or not its environment is activated, and they end with it.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.getenv("PATH", os.defpath)]))
os.environ[workflow_of_jobs.SNAKEMAKE] = str(os.getpid())
os.environ[machine.TARGET] = json.dumps(PLAN.promised and asdict(PLAN.promised))
os.environ[sharing.GPUS] = str(GPUS)
machine.tell_jobs([] if PLAN.promised or not PLAN.device else [PLAN.device, *PLAN.beside])

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


wildcard_constraints:
    network="|".join(CONFIG.networks),
    weights="[a-z]+",
    device="cpu|gpu|emulator",
    numbered=r"gpu(-\d+)?",
    size=r"\d+",
    tool="|".join(profilers.TRACERS),
    variant=variants.SHOWN,
    implementation=r"\w+",
    study="|".join(CONFIG.studies),
    submission="[A-Za-z0-9_.-]+",


rule report:
    """The report of the chosen study."""
    input:
        expand("reports/out/{study}{ending}", study=CONFIG.chosen, ending=[".pdf", "-supplement.pdf", ".html"]),


rule measure:
    """This machine's run for the chosen study."""
    input:
        "results/run",


rule archive:
    """This machine's run, packed."""
    input:
        "results/archived.txt",


rule count:
    """Hardware counters of every variant that is profiled, and of every whole network of ours."""
    input:
        TARGETS.counters,


include: "rules/data.smk"
include: "rules/build.smk"
include: "rules/check.smk"
include: "rules/measure.smk"
include: "rules/extras.smk"
include: "rules/profile.smk"
include: "rules/stream.smk"
include: "rules/run.smk"
include: "rules/report.smk"
include: "rules/compare.smk"
include: "rules/submission.smk"


# One Snakemake at a time in this folder. A lock of the operating system's goes with the process, however it ends;
# Snakemake's would stay behind a killed one and stop the next.
onstart:
    try:
        locks.folder(Path("results/.lock"))
    except UserError as error:
        sys.exit(f"error: {error}")
    if GPUS > 1:
        most = workflow.global_resources["measuring"].value
        limits = f"--cores {workflow.cores}, --resources measuring={most}"
        print(f"{GPUS} GPUs share the jobs ({PLAN.device.model}), {limits}", file=sys.stderr)
    for left in Path("results").glob(f"{VERDICTS}*"):  # by a Snakemake that was killed
        left.unlink()
    for device in ["cpu", *(["gpu"] if PLAN.device else [])]:
        if reason := sandbox.absent(CONFIG.sandbox, device):
            print(
                f"no sandbox: the {device}'s kernels and launchers run with your rights, for {reason}",
                file=sys.stderr,
            )
