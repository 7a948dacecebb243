"""Correctness: every variant against float64, on its device or emulated."""


rule check_variant:
    """One variant's correctness on a network: a row for each test."""
    input:
        program=code_dependencies.program("check_variant.py"),
        modules=lambda wildcards: code_dependencies.inputs_for("check_variant.py", wildcards.device),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        problem=lambda wildcards: TARGETS.problem(wildcards.variant),
        images=lambda wildcards: TARGETS.images(wildcards.network, wildcards.device),
        labels=lambda wildcards: TARGETS.labels(wildcards.network, wildcards.device),
    output:
        correctness="results/parts/correctness/{device}/{network}/{variant}.csv",
    log:
        "logs/check_variant/{device}/{network}/{variant}.log",
    priority: 2  # before any measurement, which would wait for it
    group:
        lambda wildcards: wildcards.device
    resources:
        measuring=lambda wildcards: int(wildcards.device == "gpu"),
        gres=lambda wildcards: GRES[wildcards.device],
        slurm_extra=lambda wildcards: SLURM_EXTRA[wildcards.device],
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        timeout=CONFIG.measuring.timeout_s,
        sandbox=CONFIG.sandbox,
        spent=f"--spent {submissions.SPENT}" if CONFIG.submission else "",
        rerun_on_columns=code_dependencies.column_types(tables.CORRECTNESS),
        rerun_on_network=lambda wildcards: CONFIG.case_set(wildcards.network).shapes_sha256,
        rerun_on_device=lambda wildcards: PLAN.identity(wildcards.device),
        rerun_on_installing=lambda wildcards: PLAN.variants[wildcards.variant].missing,
    message:
        "Checking {wildcards.variant} on {wildcards.network} ({wildcards.device})"
    shell:
        logged(
            "python3 {input.program:q} --device {wildcards.device:q} --cases {wildcards.network:q}"
            " --variant {wildcards.variant:q} --sizes {params.sizes:q} --labels {input.labels:q}"
            " --timeout {params.timeout:q} --sandbox {params.sandbox:q} {params.spent} --out {output.correctness:q}"
        )


rule check:
    """Correctness of every variant, nothing timed: one table, and failure where a variant failed."""
    input:
        program=code_dependencies.program("report_checks.py"),
        builds=TARGETS.builds,
        correctness=TARGETS.checks,
    log:
        "logs/check.log",
    message:
        "Correctness of every variant"
    shell:
        logged("python3 {input.program:q} --builds {input.builds:q} --correctness {input.correctness:q}")
