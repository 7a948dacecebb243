"""Warpbook: every kernel built, checked, timed and profiled, and the report of it.

    snakemake --cores 1 report      reports/out/<study>.pdf and .html
    snakemake --cores 1 measure     this machine's run: results/run/
    snakemake --cores 1 archive     that run packed: reports/runs/<run_id>.zip
    snakemake --cores 1 check       correctness of every variant, nothing timed
    snakemake --cores 1 sanitize    every variant under compute-sanitizer
    snakemake --cores 1 count       hardware counters of every variant, with Nsight Compute
    snakemake --cores 1 compare --config base=<run> head=<run>      reports/out/compare.md and .pdf; exit status 0: no
                                    regression, 3: regression, 4: ambiguous, 5: not comparable, 1: it failed
"""

import fcntl
import shlex
import sys
from os.path import relpath
from pathlib import Path

sys.path.insert(0, "scripts")
from warpbook import config as configuration, counters, data, networks, plan as planning, profilers, variants
from warpbook.errors import UserError

configfile: "config.yaml"

try:
    CONFIG = configuration.load(config, list(variants.discover()))
    PLAN = planning.make(CONFIG)
    PLAN.gpu_sources
except UserError as error:
    sys.exit(f"error: {error}")

PYTHON = sys.executable
MODULES = "scripts/warpbook"
MEASURING = CONFIG.measuring.model_dump_json()
DEVICE = PLAN.device.uuid_sha256 if PLAN.device else ""
DEVICES = PLAN.devices
COMPARED = "results/compared.txt"  # from `compare` to the exit status
# What a run records and a report is made by: all but what other commands are about.
RECORDED = CONFIG.model_dump(mode="json", exclude={"archive", "base", "head", "tolerance"})

# A measurement holds the machine's measuring lock. On a GPU, and with cores to spare, the next job may start and load
# meanwhile; it waits at the lock. A timing of the CPU takes every core.
AHEAD = workflow.cores if workflow.cores < 4 else workflow.cores // 2


def measuring_threads(wildcards):
    return AHEAD if wildcards.device == "gpu" else workflow.cores


# Snakemake has libraries use as many threads as a job was given cores. A CPU variant is measured with all that the machine
# has, whatever --cores says; the report names them.
ALL_CORES = "unset OMP_NUM_THREADS GOTO_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS;"

# Modules that decide what a part of a run holds: a change in one makes the part again.
SHARED = [f"{MODULES}/{name}.py" for name in ("variants", "networks", "tables", "bench", "checking", "supervision", "reference")]
GPU = [f"{MODULES}/gpu.py", f"{MODULES}/harness.cu", f"{MODULES}/building.py"]
INFERENCE = [f"{MODULES}/inference.py", f"{MODULES}/layers.cu", f"{MODULES}/weights.py", f"{MODULES}/data.py"]


wildcard_constraints:
    network="|".join(networks.NETWORKS),
    weights="[a-z]+",
    device="cpu|gpu|emulator",
    tool="cupti|nsys|nvprof",
    variant=r"\w+",
    study="|".join(CONFIG.studies),


def files_of(variant):
    """Source files of a variant, and its builds where it has CUDA C++."""
    found = PLAN.variants[variant]
    builds = [f"results/builds/{variant}"] if found.cuda_source and found.device in DEVICES else []
    return [*map(relpath, found.files), *builds]


def modules_of(device):
    own = {"cpu": [], "gpu": GPU, "emulator": [f"{MODULES}/emulator.py", f"{MODULES}/emulator.h"]}
    return [*SHARED, *own[device]]


def baseline_check(wildcards):
    """The correctness of a variant's baseline, which is timed in turn with it."""
    baseline = PLAN.variants[wildcards.variant].header.builds_on
    known = baseline in PLAN.variants and not PLAN.variants[wildcards.variant].problem
    path = f"results/parts/correctness/{wildcards.device}/{wildcards.network}/{baseline}.csv"
    return [path] if known else []


def baseline_files(wildcards):
    baseline = PLAN.variants[wildcards.variant].header.builds_on
    return files_of(baseline) if baseline in PLAN.variants else []


def baseline_profile(wildcards):
    """What a profiler saw of the variant that one builds on, where its program is watched too."""
    baseline = PLAN.variants[wildcards.variant].header.builds_on
    watched = baseline in PLAN.variants and PLAN.program_sizes(wildcards.network, baseline)
    return [f"results/parts/profiles/{wildcards.tool}/gpu/{wildcards.network}/{baseline}.csv"] if watched else []


def labels_of(wildcards):
    """Reference labels of a network's first weight set, where its weights are here."""
    sets = PLAN.weight_sets(wildcards.network)
    return [f"results/data/{wildcards.network}-{sets[0]}.labels.npy"] if sets else []


def places(device, programs=False):
    """`network/variant` for every variant of a device that this command measures, or for those whose whole programs are
    run.

    What runs the whole network needs its weights; those of sp19 are imported by whoever has them.
    """
    return [
        f"{network}/{variant}"
        for network in PLAN.networks
        if PLAN.weight_sets(network) or not programs
        for variant in PLAN.variants_of(network, device)
        if PLAN.program_sizes(network, variant) or not programs
    ]


def parts(kind, ending, programs=False):
    """Paths of one kind of part for all of those."""
    return [
        f"results/parts/{kind}/{device}/{place}{ending}" for device in DEVICES for place in places(device, programs)
    ]


# On a GPU a check takes a second: every variant is checked on every network. Where there is none, the own sources of those
# that the studies compare are checked on the CPU.
CHECKS = [
    *parts("correctness", ".csv"),
    *(
        f"results/parts/correctness/gpu/{network}/{variant}.csv"
        for network in PLAN.networks
        for variant in PLAN.also_checked(network)
        if "gpu" in DEVICES
    ),
    *(
        f"results/parts/correctness/emulator/{network}/{variant}.csv"
        for network in PLAN.networks
        for variant in PLAN.variants_of(network, "gpu")
        if "gpu" not in DEVICES and PLAN.variants[variant].cuda_source
    ),
]


# What a run holds besides, where it is asked for.
STARTS = [name for name, found in PLAN.variants.items() if found.cuda_source and not found.header.builds_on]
OURS = sorted({name for network in PLAN.networks for name in PLAN.variants_of(network, "gpu") if name in PLAN.built})
BESIDES = {
    "again": [f"results/parts/again/gpu/{network}/{name}.csv.gz" for network in PLAN.networks for name in STARTS],
    "attacks": ["results/parts/attacks.csv"],
    "sanitizer": [f"results/parts/sanitizer/{name}.csv" for name in OURS],
    "sweep": [f"results/parts/sweep/{name}.csv" for name in OURS if PLAN.variants[name].header.sweep],
}
PROFILED = places("gpu", programs=True) if "gpu" in DEVICES else []
TRACERS = [tool for tool in profilers.TRACERS if tool in PLAN.profilers]
COUNTED = PROFILED if "ncu" in PLAN.profilers else []


def besides(kind):
    return BESIDES[kind] if kind in CONFIG.besides and "gpu" in DEVICES else []


# One Snakemake at a time in this folder. A lock of the operating system's goes with the process, however it ends; Snakemake's
# own would stay behind a killed one and stop the next.
onstart:
    Path("results").mkdir(exist_ok=True)
    LOCK = open("results/.lock", "w")
    try:
        fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("error: another snakemake works in this folder; wait for it to end")
    Path(COMPARED).unlink(missing_ok=True)


# Snakemake knows success and failure alone; what two runs compare to is told after it succeeded.
onsuccess:
    if Path(COMPARED).exists():
        sys.exit(int(Path(COMPARED).read_text()))


ALL_BUILDS = expand("results/builds/{variant}", variant=PLAN.built)


rule report:
    """The report of the chosen study."""
    input:
        expand("reports/out/{study}.{format}", study=CONFIG.chosen, format=["pdf", "html"]),
    default_target: True


rule measure:
    """This machine's run for the chosen study."""
    input:
        "results/run",


rule archive:
    """This machine's run, packed."""
    input:
        "results/archived.txt",


rule check:
    """Correctness of every variant, nothing timed: one table, and failure where a variant failed."""
    input:
        program="scripts/report_checks.py",
        builds=ALL_BUILDS,
        correctness=CHECKS,
    message:
        "Correctness of every variant"
    shell:
        "{PYTHON} {input.program} --builds {input.builds} --correctness {input.correctness}"


rule prepare_data:
    """Fashion-MNIST's test images, resized for one network."""
    input:
        program="scripts/prepare_data.py",
        modules=[f"{MODULES}/data.py", f"{MODULES}/networks.py"],
    output:
        "results/data/{network}.npz",
    message:
        "Fashion-MNIST for {wildcards.network}"
    shell:
        "{PYTHON} {input.program} --network {wildcards.network} --out {output}"


rule label_images:
    """The label of every test image, by a float64 network: what variants' labels are counted against."""
    input:
        program="scripts/label_images.py",
        modules=[f"{MODULES}/reference.py", f"{MODULES}/networks.py"],
        images="results/data/{network}.npz",
        weights=lambda wildcards: f"weights/{networks.find(wildcards.network).model(wildcards.weights)}.npz",
    output:
        "results/data/{network}-{weights}.labels.npy",
    message:
        "Reference labels of {wildcards.network} in float64"
    shell:
        "{PYTHON} {input.program} --network {wildcards.network} --weights {wildcards.weights} --out {output}"


rule build_variant:
    """One variant for every architecture: a cubin each, and a row for each kernel."""
    input:
        program="scripts/build_variant.py",
        modules=[f"{MODULES}/{name}.py" for name in ("building", "variants", "tables")],
        sources=lambda wildcards: list(map(relpath, PLAN.variants[wildcards.variant].files)),
    output:
        directory("results/builds/{variant}"),
    params:
        architectures=PLAN.architectures,
    priority: 1  # before any measurement, which would wait for it
    message:
        "Building {wildcards.variant}"
    shell:
        "{PYTHON} {input.program} --variant {wildcards.variant} --architectures {params.architectures} --out {output}"


rule probe_machine:
    """This machine, and what its GPU can do at most."""
    input:
        program="scripts/probe_machine.py",
        modules=[f"{MODULES}/devices.py", f"{MODULES}/profilers.py", *(GPU if PLAN.device else [])],
    output:
        "results/parts/machine.json",
    priority: 1000  # outweighs every build: what it says of the start is the run's
    params:
        gpu="yes" if PLAN.device else "no",
        device=DEVICE,
    threads: workflow.cores
    resources:
        gpu=1,
    message:
        "Describing this machine"
    shell:
        "{PYTHON} {input.program} --gpu {params.gpu} --out {output}"


rule check_variant:
    """One variant's correctness on a network: a row for each test."""
    input:
        program="scripts/check_variant.py",
        modules=lambda wildcards: [*modules_of(wildcards.device), *INFERENCE],
        variant=lambda wildcards: files_of(wildcards.variant),
        images="results/data/{network}.npz",
        labels=labels_of,
    output:
        "results/parts/correctness/{device}/{network}/{variant}.csv",
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        labels=lambda wildcards, input: f"--labels {input.labels}" if input.labels else "",
        missing=lambda wildcards: PLAN.variants[wildcards.variant].missing,
        timeout=CONFIG.measuring.timeout_s,
        device=lambda wildcards: DEVICE if wildcards.device == "gpu" else "",
    resources:
        gpu=lambda wildcards: int(wildcards.device == "gpu"),
    priority: 1  # before any measurement, which would wait for it
    message:
        "Checking {wildcards.variant} on {wildcards.network} ({wildcards.device})"
    shell:
        "{PYTHON} {input.program} --device {wildcards.device} --network {wildcards.network}"
        " --variant {wildcards.variant} --sizes {params.sizes} {params.labels} --timeout {params.timeout} --out {output}"


rule measure_variant:
    """One variant in turn with its baseline on every layer at every size: a row for each sample."""
    input:
        program="scripts/measure_variant.py",
        modules=lambda wildcards: [
            *modules_of(wildcards.device),
            *(f"{MODULES}/{name}.py" for name in ("timing", "estimates", "clocks")),
        ],
        variant=lambda wildcards: files_of(wildcards.variant),
        baseline=baseline_files,
        machine="results/parts/machine.json",
        correctness="results/parts/correctness/{device}/{network}/{variant}.csv",
        baseline_correctness=baseline_check,
    output:
        "results/parts/samples/{device}/{network}/{variant}.csv.gz",
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        measuring=shlex.quote(MEASURING),
        baseline=lambda wildcards, input: (
            f"--baseline-correctness {input.baseline_correctness}" if input.baseline_correctness else ""
        ),
        device=lambda wildcards: DEVICE if wildcards.device == "gpu" else "",
    threads: measuring_threads
    resources:
        gpu=1,
    message:
        "Timing {wildcards.variant} on {wildcards.network}"
    shell:
        "{ALL_CORES} {PYTHON} {input.program} --device {wildcards.device} --network {wildcards.network}"
        " --variant {wildcards.variant} --sizes {params.sizes} --measuring {params.measuring}"
        " --correctness {input.correctness} {params.baseline} --machine {input.machine} --out {output}"


rule measure_again:
    """A variant in turn with its own copy: how often the harness calls the same thing faster or slower."""
    input:
        program="scripts/measure_variant.py",
        modules=[*modules_of("gpu"), *(f"{MODULES}/{name}.py" for name in ("timing", "estimates", "clocks"))],
        variant=lambda wildcards: files_of(wildcards.variant),
        machine="results/parts/machine.json",
        correctness="results/parts/correctness/gpu/{network}/{variant}.csv",
    output:
        "results/parts/again/gpu/{network}/{variant}.csv.gz",
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        measuring=shlex.quote(MEASURING),
        device=DEVICE,
    threads: AHEAD
    resources:
        gpu=1,
    message:
        "Timing {wildcards.variant} against itself on {wildcards.network}"
    shell:
        "{PYTHON} {input.program} --device gpu --network {wildcards.network} --variant {wildcards.variant} --again"
        " --sizes {params.sizes} --measuring {params.measuring} --correctness {input.correctness}"
        " --machine {input.machine} --out {output}"


rule sanitize_variant:
    """One variant under compute-sanitizer: a row for each of its tools."""
    input:
        program="scripts/sanitize_variant.py",
        modules=modules_of("gpu"),
        variant=lambda wildcards: files_of(wildcards.variant),
    output:
        "results/parts/sanitizer/{variant}.csv",
    params:
        timeout=CONFIG.measuring.timeout_s,
        device=DEVICE,
    resources:
        gpu=1,
    message:
        "compute-sanitizer over {wildcards.variant}"
    shell:
        "{PYTHON} {input.program} --variant {wildcards.variant} --timeout {params.timeout} --out {output}"


rule attack_harness:
    """Cheating and broken kernels: a row for each, which a check must catch."""
    input:
        program="scripts/attack_harness.py",
        modules=[*modules_of("gpu"), f"{MODULES}/attacks.py", "scripts/check_variant.py"],
    output:
        "results/parts/attacks.csv",
    params:
        device=DEVICE,
    threads: 4
    resources:
        gpu=1,
    message:
        "Attacking the harness"
    shell:
        "{PYTHON} {input.program} --device gpu --out {output}"


rule sweep_variant:
    """Kernel Tuner over one variant's parameters on the default study's last layer: a row for each configuration."""
    input:
        program="scripts/sweep_variant.py",
        modules=[f"{MODULES}/{name}.py" for name in ("variants", "networks", "tables", "reference")],
        variant=lambda wildcards: list(map(relpath, PLAN.variants[wildcards.variant].files)),
    output:
        "results/parts/sweep/{variant}.csv",
    params:
        network=lambda wildcards: PLAN.networks[0],
        device=DEVICE,
    threads: workflow.cores
    resources:
        gpu=1,
    message:
        "Kernel Tuner over {wildcards.variant}"
    shell:
        "{PYTHON} {input.program} --variant {wildcards.variant} --network {params.network} --out {output}"


rule count_variant:
    """One variant's hardware counters on a network, read by Nsight Compute: a row for each counter of each launch."""
    input:
        program="scripts/count_variant.py",
        modules=[*modules_of("gpu"), *(f"{MODULES}/{name}.py" for name in ("nsight", "profile_rows"))],
        variant=lambda wildcards: files_of(wildcards.variant),
    output:
        counters="results/parts/counters/gpu/{network}/{variant}.csv",
        reports=directory("results/parts/reports/ncu/gpu/{network}/{variant}"),
    params:
        images=lambda wildcards: PLAN.sizes(wildcards.network)[-1],
        metrics=counters.wanted(PLAN.variants.values()),
        timeout=CONFIG.measuring.timeout_s,
        device=DEVICE,
    threads: AHEAD
    resources:
        gpu=1,
    message:
        "Nsight Compute over {wildcards.variant} on {wildcards.network}"
    shell:
        "{PYTHON} {input.program} --network {wildcards.network} --variant {wildcards.variant}"
        " --images {params.images} --timeout {params.timeout} --out {output.counters} --reports {output.reports}"
        " --metrics {params.metrics}"


rule count:
    """Hardware counters of every variant that is profiled."""
    input:
        expand("results/parts/counters/gpu/{place}.csv", place=COUNTED),


rule sanitize:
    """compute-sanitizer over every variant; fails where it found something."""
    input:
        program="scripts/report_checks.py",
        sanitizer=BESIDES["sanitizer"],
    message:
        "compute-sanitizer over every variant"
    shell:
        "{PYTHON} {input.program} --sanitizer {input.sanitizer}"


rule run_program:
    """The whole inference program with one variant: a row for each run."""
    input:
        program="scripts/run_program.py",
        inference="scripts/infer.py",
        modules=lambda wildcards: [*modules_of(wildcards.device), *INFERENCE],
        variant=lambda wildcards: files_of(wildcards.variant),
        images="results/data/{network}.npz",
        correctness="results/parts/correctness/{device}/{network}/{variant}.csv",
    output:
        "results/parts/programs/{device}/{network}/{variant}.csv",
    params:
        sizes=lambda wildcards: PLAN.program_sizes(wildcards.network, wildcards.variant),
        repeat=lambda wildcards: "--repeat" if PLAN.repeats_programs(wildcards.variant) else "",
        weights=lambda wildcards: PLAN.weight_sets(wildcards.network),
        measuring=shlex.quote(MEASURING),
        device=lambda wildcards: DEVICE if wildcards.device == "gpu" else "",
    threads: measuring_threads
    resources:
        gpu=1,
    message:
        "Running the whole program with {wildcards.variant} on {wildcards.network}"
    shell:
        "{ALL_CORES} {PYTHON} {input.program} --network {wildcards.network} --weights {params.weights}"
        " --variant {wildcards.variant} --sizes {params.sizes} --measuring {params.measuring}"
        " {params.repeat} --correctness {input.correctness} --out {output}"


rule trace_program:
    """The inference program watched by a profiler: a row for each kernel, copy, API call and range."""
    input:
        program="scripts/trace_program.py",
        inference="scripts/infer.py",
        tracer="scripts/trace_with_cupti.py",
        modules=[*SHARED, *GPU, *INFERENCE, *(f"{MODULES}/{name}.py" for name in ("nsight", "cupti_sqlite", "profile_rows", "profiles"))],
        variant=lambda wildcards: files_of(wildcards.variant),
        images="results/data/{network}.npz",
        correctness="results/parts/correctness/gpu/{network}/{variant}.csv",
        baseline=baseline_profile,
    output:
        activities="results/parts/activities/{tool}/gpu/{network}/{variant}.csv.gz",
        profiles="results/parts/profiles/{tool}/gpu/{network}/{variant}.csv",
        reports=directory("results/parts/reports/{tool}/gpu/{network}/{variant}"),
    params:
        sizes=lambda wildcards: PLAN.profile_sizes(wildcards.tool, wildcards.network, wildcards.variant),
        baseline=lambda wildcards, input: f"--baseline {input.baseline}" if input.baseline else "",
        timeout=CONFIG.measuring.timeout_s,
        device=DEVICE,
    threads: AHEAD
    resources:
        gpu=1,
    message:
        "Profiling {wildcards.variant} on {wildcards.network} with {wildcards.tool}"
    shell:
        "{PYTHON} {input.program} --tool {wildcards.tool} --network {wildcards.network} --variant {wildcards.variant}"
        " --sizes {params.sizes} --timeout {params.timeout} --correctness {input.correctness} {params.baseline}"
        " --out {output.activities} --profiles {output.profiles} --reports {output.reports}"


rule assemble_run:
    """All parts of this machine's run, as its tables."""
    input:
        modules=[f"{MODULES}/{name}.py" for name in ("summaries", "estimates", "tables", "runs", "traces")],
        machine="results/parts/machine.json",
        builds=ALL_BUILDS,
        correctness=CHECKS,
        samples=parts("samples", ".csv.gz") + besides("again"),
        programs=parts("programs", ".csv", programs=True),
        sanitizer=besides("sanitizer"),
        attacks=besides("attacks"),
        sweep=besides("sweep"),
        counters=rules.count.input,
        activities=expand("results/parts/activities/{tool}/gpu/{place}.csv.gz", tool=TRACERS, place=PROFILED),
        profiles=expand("results/parts/profiles/{tool}/gpu/{place}.csv", tool=TRACERS, place=PROFILED),
        reports=expand("results/parts/reports/{tool}/gpu/{place}", tool=TRACERS, place=PROFILED)
        + expand("results/parts/reports/ncu/gpu/{place}", place=COUNTED),
    output:
        directory("results/run"),
    params:
        config=RECORDED,
        sizes={network: PLAN.sizes(network) for network in PLAN.networks},
    message:
        "Putting the run together"
    script:
        "scripts/assemble_run.py"


rule compare:
    """Two runs held against each other: ids of archived runs, or paths."""
    params:
        base=CONFIG.base,
        head=CONFIG.head,
        tolerance=CONFIG.tolerance,
        markdown="reports/out/compare.md",
        pdf="reports/out/compare.pdf",
        outcome=COMPARED,
    localrule: True
    message:
        "Comparing two runs"
    script:
        "scripts/compare_runs.py"


rule archive_run:
    """The run as one zip, and the profilers' own files as another."""
    input:
        modules=[f"{MODULES}/tables.py", f"{MODULES}/runs.py"],
        run="results/run",
    output:
        "results/archived.txt",
    params:
        folder=CONFIG.archive or "reports/runs",
    message:
        "Archiving the run"
    script:
        "scripts/archive_run.py"


rule render_report:
    """A study's report, from this machine's run and the archived run that it cites."""
    input:
        modules=[
            f"{MODULES}/{name}.py"
            for name in (
                "rendering", "evidence", "figures", "narrative", "profiled", "profilers", "units", "estimates", "counters",
                "plan", "runs", "devices", "variants",
            )
        ],
        templates=sorted(
            str(path)
            for ending in ("*.j2", "*/*.j2", "*/*.css", "narrative/*.md", "published/*.csv")
            for path in Path("reports").glob(ending)
            if not path.name.startswith("compare.")
        ),
        run="results/run",
        cited=[str(path) for path in PLAN.cited],
    output:
        html="reports/out/{study}.html",
        pdf="reports/out/{study}.pdf",
    params:
        config=RECORDED,
    message:
        "Rendering the report of {wildcards.study}"
    script:
        "scripts/render_report.py"
