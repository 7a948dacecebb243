"""Optional measurements of a GPU: those that `optional_measurements` in config.yaml names."""


rule measure_aa:
    """An A/A test: one variant interleaved with its own copy, to see how often the harness errs."""
    input:
        program=code_dependencies.program("measure_variant.py"),
        modules=code_dependencies.inputs_for("measure_variant.py", "gpu"),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        machine="results/parts/machine.json",
        correctness="results/parts/correctness/gpu/{network}/{variant}.csv",
    output:
        samples="results/parts/aa/{numbered}/{network}/{variant}.csv.gz",
    log:
        "logs/measure_aa/{numbered}/{network}/{variant}.log",
    group:
        "gpu"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        # Each GPU of several makes its share of the tests, and so is held against the others.
        tests=-(-optional_measurements.AA_TESTS // PLAN.gpus),
        gpu=lambda wildcards: wildcards.numbered.replace("gpu", "").replace("-", "--gpu "),
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        measuring=CONFIG.measuring.model_dump_json(),
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.SAMPLES),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Timing {wildcards.variant} against itself on {wildcards.network} ({wildcards.numbered})"
    shell:
        logged(
            "python3 {input.program:q} --device gpu --cases {wildcards.network:q} --variant {wildcards.variant:q}"
            " --aa {params.tests} {params.gpu} --sizes {params.sizes:q} --measuring {params.measuring:q}"
            " --correctness {input.correctness:q}"
            " --machine {input.machine:q} --sandbox {params.sandbox:q} --out {output.samples:q}"
        )


rule measure_pairs:
    """Kernels whose difference is known, compared again and again: how often a verdict is false."""
    input:
        program=code_dependencies.program("measure_pairs.py"),
        modules=lambda wildcards: code_dependencies.inputs_for("measure_pairs.py", wildcards.device),
        machine="results/parts/machine.json",
    output:
        pairs="results/parts/pairs/{device}{number}.csv",
    log:
        "logs/measure_pairs/{device}{number}.log",
    group:
        lambda wildcards: wildcards.device
    threads: lambda wildcards: MEASURING_THREADS[wildcards.device]
    resources:
        measuring=1,
        gres=lambda wildcards: GRES[wildcards.device],
        slurm_extra=lambda wildcards: SLURM_EXTRA[wildcards.device],
    params:
        gpu=lambda wildcards: wildcards.number.replace("-", "--gpu "),
        processes=lambda wildcards: -(
            -optional_measurements.PAIRED_PROCESSES // (PLAN.gpus if wildcards.device == "gpu" else 1)
        ),
        tests=optional_measurements.PAIRED_TESTS,
        measuring=CONFIG.measuring.model_dump_json(),
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.PAIRS),
        rerun_on_device=lambda wildcards: PLAN.identity(wildcards.device),
    message:
        "Comparing kernels whose difference is known ({wildcards.device}{wildcards.number})"
    shell:
        logged(
            "python3 {input.program:q} --device {wildcards.device:q} {params.gpu} --processes {params.processes} --tests {params.tests}"
            " --measuring {params.measuring:q} --machine {input.machine:q} --sandbox {params.sandbox:q}"
            " --out {output.pairs:q}"
        )


rule sanitize_variant:
    """One variant under compute-sanitizer: a row for each of its tools."""
    input:
        program=code_dependencies.program("sanitize_variant.py"),
        modules=code_dependencies.inputs_for("sanitize_variant.py", "gpu"),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
    output:
        sanitizer="results/parts/sanitizer/{variant}.csv",
    log:
        "logs/sanitize_variant/{variant}.log",
    priority: 2  # beside the checks, and not between measurements
    group:
        "gpu"
    threads: 4  # one for each tool
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        variant=lambda wildcards: wildcards.variant,
        timeout=CONFIG.measuring.timeout_s,
        rerun_on_columns=code_dependencies.column_types(tables.SANITIZER),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "compute-sanitizer over {params.variant}"
    shell:
        logged(
            "python3 {input.program:q} --variant {params.variant:q} --timeout {params.timeout:q}"
            " --out {output.sanitizer:q}"
        )


use rule sanitize_variant as sanitize_network with:
    input:
        program=code_dependencies.program("sanitize_variant.py"),
        modules=code_dependencies.inputs_for("sanitize_variant.py", "gpu"),
        variant=lambda wildcards: WHOLE.sources(wildcards.implementation),
    output:
        sanitizer="results/parts/sanitizer/network/{implementation}.csv",
    log:
        "logs/sanitize_network/{implementation}.log",
    params:
        variant=lambda wildcards: f"network/{wildcards.implementation}",
        timeout=CONFIG.measuring.timeout_s,
        rerun_on_columns=code_dependencies.column_types(tables.SANITIZER),
        rerun_on_device=PLAN.identity("gpu"),


rule sanitize:
    """compute-sanitizer over every variant and whole network; fails where it found something."""
    input:
        program=code_dependencies.program("report_checks.py"),
        sanitizer=lambda _: TARGETS.sanitizer,
    log:
        "logs/sanitize.log",
    message:
        "compute-sanitizer over every variant and whole network"
    shell:
        logged("python3 {input.program:q} --sanitizer {input.sanitizer:q}")


rule attack_harness:
    """Cheating and broken kernels: a row for each, which a check must catch."""
    input:
        program=code_dependencies.program("attack_harness.py"),
        modules=code_dependencies.inputs_for("attack_harness.py", "gpu"),
    output:
        attacks="results/parts/attacks.csv",
    log:
        "logs/attack_harness.log",
    group:
        "gpu"
    threads: 4
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        rerun_on_columns=code_dependencies.column_types(tables.ATTACKS),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Attacking the harness"
    shell:
        logged("python3 {input.program:q} --device gpu --out {output.attacks:q}")


rule measure_precision:
    """Errors of one variant and of its problem's baseline against float64, over the length of sums and the range of inputs."""
    input:
        program=code_dependencies.program("measure_precision.py"),
        modules=code_dependencies.inputs_for("measure_precision.py", "gpu"),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        baseline=lambda wildcards: TARGETS.files_for(PLAN.problem_baseline(wildcards.variant)),
        problem=lambda wildcards: TARGETS.problem(wildcards.variant),
    output:
        precision="results/parts/precision/{variant}.csv",
    log:
        "logs/measure_precision/{variant}.log",
    priority: 2  # before any measurement, which would wait for it
    group:
        "gpu"
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        timeout=CONFIG.measuring.timeout_s,
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.PRECISION),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Errors of {wildcards.variant} beside those of its problem's baseline"
    shell:
        logged(
            "python3 {input.program:q} --variant {wildcards.variant:q} --timeout {params.timeout:q}"
            " --sandbox {params.sandbox:q} --out {output.precision:q}"
        )


rule sweep_variant:
    """Kernel Tuner over one variant's parameters on the default study's last layer: a row for each configuration."""
    input:
        program=code_dependencies.program("sweep_variant.py"),
        modules=code_dependencies.inputs_for("sweep_variant.py", "gpu"),
        sources=lambda wildcards: TARGETS.sources(wildcards.variant),
    output:
        sweep="results/parts/sweep/{variant}.csv",
    log:
        "logs/sweep_variant/{variant}.log",
    group:
        "gpu"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        cases=lambda wildcards: PLAN.cases_for(wildcards.variant),
        rerun_on_columns=code_dependencies.column_types(tables.SWEEP),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Kernel Tuner over {wildcards.variant}"
    shell:
        logged(
            "python3 {input.program:q} --variant {wildcards.variant:q} --cases {params.cases:q} --out {output.sweep:q}"
        )
