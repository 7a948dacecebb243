"""Kernels and C++ compiled; needs no GPU."""


rule build_variant:
    """One variant for every architecture, C++ for this machine: a cubin each, and a row for each kernel."""
    input:
        program=code_dependencies.program("build_variant.py"),
        modules=code_dependencies.inputs_for("build_variant.py"),
        sources=lambda wildcards: TARGETS.sources(wildcards.variant),
    output:
        builds=directory("results/builds/{variant}"),
    log:
        "logs/build_variant/{variant}.log",
    priority: 2  # before any measurement, which would wait for it
    group:
        "prepare"
    params:
        architectures=PLAN.architectures,
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.BUILDS),
        rerun_on_installing=lambda wildcards: PLAN.variants[wildcards.variant].missing,
    message:
        "Building {wildcards.variant}"
    shell:
        logged(
            "python3 {input.program:q} --variant {wildcards.variant:q} --architectures {params.architectures:q}"
            " --sandbox {params.sandbox:q} --out {output.builds:q}"
        )
