"""Warpbook: every kernel built, checked, timed and profiled, and the report of it.

    snakemake --cores 1 report      reports/out/<study>.pdf, <study>-supplement.pdf and <study>.html
    snakemake --cores 1 measure     this machine's run: results/run/
    snakemake --cores 1 archive     the same run as one file: reports/runs/<run_id>.zip
    snakemake --cores 1 check       correctness of every variant, without timing
    snakemake --cores 1 sanitize    every variant and whole network under compute-sanitizer
    snakemake --cores 1 count       hardware counters of every variant and whole network, with Nsight Compute
    snakemake --cores all stream    inference of millions of images on all GPUs: results/stream/streams.csv
    snakemake --cores 1 compare --config base=<run> head=<run>      what changed between two runs: reports/out/compare.md and .pdf
    snakemake --cores 1 site        pages about all archived runs: reports/out/site/index.html
    snakemake --cores 1 track       all archived runs in MLflow
    snakemake --cores 1 submission --config path=<folder> study=sp25      report of a submission: reports/out/sp25/<name>/
    snakemake --cores 1 grade --config submissions=<folder> study=sp25    report of each submission, and reports/out/sp25-grades/

What is made is decided in scripts/warpbook/workflow/: plan.py and targets.py; what a rule depends on, in
code_dependencies.py.
"""


include: "rules/common.smk"


rule report:
    """The report of the chosen study."""
    input:
        expand("reports/out/{study}{ending}", study=CONFIG.chosen_studies, ending=[".pdf", "-supplement.pdf", ".html"]),


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
include: "rules/optional.smk"
include: "rules/profile.smk"
include: "rules/stream.smk"
include: "rules/run.smk"
include: "rules/report.smk"
include: "rules/compare.smk"
include: "rules/submission.smk"


for each in workflow.rules:  # for --software-deployment-method conda; else they run in this Snakemake's environment
    if not each.norun:
        each.conda_env = str(Path(workflow.basedir, "requirements/conda.yaml"))


# One Snakemake at a time in this folder. A lock of the operating system's goes with the process, however it ends;
# Snakemake's would stay behind a killed one and stop the next.
onstart:
    try:
        locks.lock_folder(Path("results/.lock"))
    except UserError as error:
        sys.exit(f"error: {error}")
    if GPUS > 1:
        most = workflow.global_resources["measuring"].value
        limits = f"--cores {workflow.cores}, --resources measuring={most}"
        print(f"{GPUS} GPUs share the jobs ({PLAN.device.model}), {limits}", file=sys.stderr)
    # A second after each look at the jobs that wait, Snakemake's limit on jobs a second has it look once more, and so does
    # each job that ends: soon it would do nothing else, on a processor that measurements are to have for themselves.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    for left in Path("results").glob(f"{VERDICTS}*"):  # by a Snakemake that was killed
        left.unlink()
    for device in ["cpu", *(["gpu"] if PLAN.device else [])]:
        if reason := sandbox.why_absent(CONFIG.sandbox, device):
            print(
                f"no sandbox: the {device}'s kernels and launchers run with your rights, for {reason}",
                file=sys.stderr,
            )
