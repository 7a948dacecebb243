"""The report, and pages about all archived runs: rendered, never measured."""


rule render_report:
    """A study's report and its supplement, from this machine's run and the archived run that it cites."""
    input:
        program=code_dependencies.program("render_report.py"),
        modules=code_dependencies.inputs_for("render_report.py", presenting=True),
        templates=TARGETS.templates,
        run="results/run",
        archived=[str(path) for path in catalog.archived_paths()],  # those cited, and the one before
        imported=lambda wildcards: TARGETS.imported_files(wildcards.study),
    output:
        html="reports/out/{study}.html",
        pdf="reports/out/{study}.pdf",
        supplement="reports/out/{study}-supplement.pdf",
        said="results/said/{study}.txt",
    log:
        "logs/render_report/{study}.log",
    group:
        "report"
    params:
        config=CONFIG.recorded_json,
    message:
        "Rendering the report of {wildcards.study}"
    shell:
        logged(
            "python3 {input.program:q} --study {wildcards.study:q} --config {params.config:q} --run {input.run:q}"
            " --imported results/imported/{wildcards.study} --html {output.html:q} --pdf {output.pdf:q}"
            " --console-summary {output.said:q}"
        )


rule site:
    """Static pages about all archived runs, with copies of the reports that exist."""
    input:
        program=code_dependencies.program("render_site.py"),
        modules=code_dependencies.inputs_for("render_site.py", presenting=True),
        templates=site_templates(),
        kernels=[str(path) for variant in PLAN.variants.values() for path in variant.files],
        archived=[str(path) for path in catalog.archived_paths()],
    output:
        pages=directory("reports/out/site"),
    log:
        "logs/render_site.log",
    params:
        config=CONFIG.recorded_json,
        rerun_on_reports=rendered_reports(),
    message:
        "Rendering pages over the archived runs"
    shell:
        logged(
            "python3 {input.program:q} --archived {input.archived:q} --reports reports/out --config {params.config:q}"
            " --out {output.pages:q}"
        )


rule track:
    """Archived runs logged to MLflow, each once."""
    input:
        program=code_dependencies.program("track_runs.py"),
        archived=[str(path) for path in catalog.archived_paths()],
    log:
        "logs/track_runs.log",
    localrule: True
    params:
        tolerance=CONFIG.tolerance,
    message:
        "Logging archived runs to MLflow"
    shell:
        logged("python3 {input.program:q} --archived {input.archived:q} --tolerance {params.tolerance:q}")
