"""The report: rendered, never measured."""


rule render_report:
    """A study's report and its supplement, from this machine's run and the archived run that it cites."""
    input:
        program="scripts/render_report.py",
        modules=dependencies.of("render_report.py", presenting=True),
        templates=TARGETS.templates,
        run="results/run",
        archived=[str(path) for path in runs.archived()],  # those cited, and the one before
        imported=lambda wildcards: TARGETS.imported(wildcards.study),
    output:
        html="reports/out/{study}.html",
        pdf="reports/out/{study}.pdf",
        supplement="reports/out/{study}-supplement.pdf",
    log:
        "logs/render_report/{study}.log",
    group:
        "report"
    conda:
        "../requirements/conda.yaml"
    params:
        config=CONFIG.recorded,
    message:
        "Rendering the report of {wildcards.study}"
    shell:
        "python3 {input.program:q} --study {wildcards.study:q} --config {params.config:q} --run {input.run:q}"
        " --imported results/imported/{wildcards.study} --html {output.html:q} --pdf {output.pdf:q} 2> >(tee {log:q} >&2)"
