"""Submissions of the course: each is worked on in a project of its own, by a Snakemake of its own, and reported on."""


rule render_submission:
    """In a submission's own project: its report, and a row for each optimization that its term lists."""
    input:
        program="scripts/render_submission.py",
        modules=dependencies.of("render_submission.py", presenting=True),
        templates=TARGETS.templates,
        run="results/run",
    output:
        report=directory("results/report"),
    log:
        "logs/render_submission.log",
    group:
        "report"
    conda:
        "../requirements/conda.yaml"
    params:
        config=CONFIG.recorded,
    message:
        "Rendering the report of the submission"
    shell:
        "python3 {input.program:q} --config {params.config:q} --run {input.run:q} --out {output.report:q}"
        " 2> >(tee {log:q} >&2)"


rule report_submission:
    """One submission: its report as PDF and HTML, and its rows of the table over all."""
    input:
        program="scripts/report_submission.py",
        code=dependencies.all_code(),
    output:
        reports=directory("reports/out/{study}/{submission}"),
    log:
        "logs/report_submission/{study}/{submission}.log",
    conda:
        "../requirements/conda.yaml"
    params:
        folder=lambda wildcards: str(SUBMITTED[wildcards.submission].folder),
        config=lambda _: submissions.shared_configuration(CONFIG),
        rerun_on_content=lambda wildcards: SUBMITTED[wildcards.submission].sha256,
    message:
        "Submission {wildcards.submission}"
    shell:
        "python3 {input.program:q} --folder {params.folder:q} --name {wildcards.submission:q} --config {params.config:q}"
        " --cores {workflow.cores} --out {output.reports:q} 2> >(tee {log:q} >&2)"


rule submission:
    """The report of the submission at `path`."""
    input:
        lambda _: submissions.reports(CONFIG.study, SUBMITTED),
