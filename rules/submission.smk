"""Submissions of the course: each is worked on in a project of its own, on a GPU by a Snakemake of its own, and reported on."""


rule render_submission:
    """In a submission's own project: its report, and a row for each optimization of the term."""
    input:
        program=code_dependencies.program("render_submission.py"),
        modules=code_dependencies.inputs_for("render_submission.py", presenting=True),
        templates=TARGETS.templates,
        run="results/run",
    output:
        report=directory("results/report"),
    log:
        "logs/render_submission.log",
    group:
        "report"
    params:
        config=CONFIG.recorded_json,
    message:
        "Rendering the report of the submission"
    shell:
        logged("python3 {input.program:q} --config {params.config:q} --run {input.run:q} --out {output.report:q}")


rule report_submission:
    """One submission: its report as PDF and HTML, and its rows of the table."""
    input:
        program=code_dependencies.program("report_submission.py"),
        code=code_dependencies.all_code(),
    output:
        reports=directory("reports/out/{study}/{submission}"),
    log:
        "logs/report_submission/{study}/{submission}.log",
    params:
        room=lambda wildcards: str(submissions.ROOMS / wildcards.study / wildcards.submission),
        folder=lambda wildcards: str(SUBMITTED[wildcards.submission].folder),
        problem=lambda wildcards: SUBMITTED[wildcards.submission].problem,
        config=lambda _: submissions.shared_configuration(CONFIG, reference_times.for_configuration(CONFIG)),
        cores=1 if CONFIG.submissions else workflow.cores,
        strangers="--untrusted" if CONFIG.submissions else "",
        rerun_on_content=lambda wildcards: SUBMITTED[wildcards.submission].sha256,
    message:
        "Submission {wildcards.submission}"
    shell:
        logged(
            "WARPBOOK_SUBMISSION=1 WARPBOOK_PROJECT=$PWD/{params.room:q}"
            " python3 {input.program:q} --folder {params.folder:q} --problem {params.problem:q} --name {wildcards.submission:q} --config {params.config:q}"
            " --cores {params.cores} {params.strangers} --out {output.reports:q}"
        )


rule submission:
    """The report of the submission at `path`."""
    input:
        lambda _: submissions.report_folders(CONFIG.study, SUBMITTED),


rule grade_submissions:
    """One table over all submissions of a folder: a row for each file that the term asks for."""
    input:
        program=code_dependencies.program("grade_submissions.py"),
        modules=code_dependencies.inputs_for("grade_submissions.py", presenting=True),
        templates=TARGETS.templates,
        reports=lambda _: submissions.report_folders(CONFIG.study, SUBMITTED),
    output:
        grades=directory("reports/out/{study}-grades"),
    log:
        "logs/grade_submissions/{study}.log",
    params:
        config=lambda _: submissions.shared_configuration(CONFIG),
    message:
        "Table over all submissions"
    shell:
        logged(
            "python3 {input.program:q} --config {params.config:q} --reports {input.reports:q} --out {output.grades:q}"
        )


rule grade:
    """A report on each submission in the folder `submissions`, and one table over all."""
    input:
        f"reports/out/{CONFIG.study}-grades",
