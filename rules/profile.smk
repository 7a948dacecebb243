"""Programs profiled, and kernels' hardware counters."""


rule trace_program:
    """The profiled inference program: a row for each kernel, copy, API call and range."""
    input:
        program=code_dependencies.program("trace_program.py"),
        modules=code_dependencies.inputs_for("trace_program.py", "gpu"),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        images="results/data/{network}.npz",
        correctness="results/parts/correctness/gpu/{network}/{variant}.csv",
        baseline=lambda wildcards: TARGETS.baseline_profile(**wildcards),
    output:
        activities="results/parts/activities/{tool}/gpu/{network}/{variant}.csv.gz",
        sums="results/parts/profile_summaries/{tool}/gpu/{network}/{variant}.csv",
        profiles="results/parts/profiles/{tool}/gpu/{network}/{variant}.csv",
        reports=directory("results/parts/reports/{tool}/gpu/{network}/{variant}"),
    log:
        "logs/trace_program/{tool}/{network}/{variant}.log",
    group:
        "gpu"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        sizes=lambda wildcards: PLAN.profile_sizes(**wildcards),
        weights=lambda wildcards: PLAN.profile_weights(**wildcards),
        timeout=CONFIG.measuring.timeout_s,
        rerun_on_columns=code_dependencies.column_types(tables.ACTIVITIES, tables.SUMMARIES, tables.PROFILES),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Profiling {wildcards.variant} on {wildcards.network} with {wildcards.tool}"
    shell:
        logged(
            "python3 {input.program:q} --tool {wildcards.tool:q} --network {wildcards.network:q}"
            " --variant {wildcards.variant:q} --sizes {params.sizes:q} --weights {params.weights:q}"
            " --timeout {params.timeout:q} --correctness {input.correctness:q} --baseline {input.baseline:q} --out {output.activities:q}"
            " --sums {output.sums:q} --profiles {output.profiles:q} --reports {output.reports:q}"
        )


rule count_variant:
    """One variant's hardware counters on a network, read by Nsight Compute: a row for each counter of each launch."""
    input:
        program=code_dependencies.program("count_variant.py"),
        modules=code_dependencies.inputs_for("count_variant.py", "gpu"),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
    output:
        counters="results/parts/counters/gpu/{network}/{variant}.csv",
        reports=directory("results/parts/reports/ncu/gpu/{network}/{variant}"),
    log:
        "logs/count_variant/{network}/{variant}.log",
    group:
        "counters"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        images=lambda wildcards: PLAN.sizes(wildcards.network)[-1],
        metrics=counters.metrics_to_read(PLAN.variants.values()),
        timeout=CONFIG.measuring.timeout_s,
        rerun_on_network=lambda wildcards: CONFIG.case_set(wildcards.network).shapes_sha256,
        rerun_on_columns=code_dependencies.column_types(tables.COUNTERS),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Nsight Compute over {wildcards.variant} on {wildcards.network}"
    shell:
        logged(
            "python3 {input.program:q} --cases {wildcards.network:q} --variant {wildcards.variant:q}"
            " --images {params.images:q} --timeout {params.timeout:q} --out {output.counters:q}"
            " --reports {output.reports:q} --metrics {params.metrics:q}"
        )


rule count_network:
    """Hardware counters of one whole network at the largest size."""
    input:
        program=code_dependencies.program("count_network.py"),
        modules=code_dependencies.inputs_for("count_network.py", "gpu"),
        implementation=lambda wildcards: WHOLE.sources(wildcards.implementation),
        images="results/data/{network}.npz",
        weights=lambda wildcards: TARGETS.weights(wildcards.network, PLAN.weight_sets(wildcards.network)[0]),
    output:
        counters="results/parts/counters/gpu/{network}/network/{implementation}.csv",
    log:
        "logs/count_network/{network}/{implementation}.log",
    group:
        "counters"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        images=lambda wildcards: PLAN.sizes(wildcards.network)[-1],
        weights=lambda wildcards: PLAN.weight_sets(wildcards.network)[0],
        metrics=counters.ALWAYS,
        timeout=CONFIG.measuring.timeout_s,
        rerun_on_network=lambda wildcards: CONFIG.network(wildcards.network).shapes_sha256,
        rerun_on_columns=code_dependencies.column_types(tables.COUNTERS),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Nsight Compute over the whole network {wildcards.network} by {wildcards.implementation}"
    shell:
        logged(
            "python3 {input.program:q} --network {wildcards.network:q} --weights {params.weights:q}"
            " --implementation {wildcards.implementation:q} --images {params.images:q} --timeout {params.timeout:q}"
            " --out {output.counters:q} --metrics {params.metrics:q}"
        )
