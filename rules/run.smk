"""The parts of this machine's run put together, and packed."""


rule assemble_run:
    """All measured parts of this machine's run, as tables."""
    input:
        program=code_dependencies.program("assemble_run.py"),
        modules=code_dependencies.inputs_for("assemble_run.py"),
        machine="results/parts/machine.json",
        builds=lambda _: TARGETS.builds_of_run,
        parts=lambda _: TARGETS.parts,  # both look into archived runs: not for commands that need no run
        reports=TARGETS.reports,
    output:
        run=directory("results/run"),
    log:
        "logs/assemble_run.log",
    group:
        "report"
    params:
        config=CONFIG.recorded_json,
        sizes=json.dumps({name: PLAN.sizes(name) for name in PLAN.case_sets}),
        rerun_on_columns=code_dependencies.column_types(*tables.RUN_TABLES),
    message:
        "Putting the run together"
    shell:
        logged(
            "python3 {input.program:q} --config {params.config:q} --sizes {params.sizes:q} --machine {input.machine:q}"
            " --builds {input.builds:q} --inputs {input.parts:q} --reports {input.reports:q} --out {output.run:q}"
        )


rule archive_run:
    """The run as one zip, and the profilers' files as another."""
    input:
        program=code_dependencies.program("archive_run.py"),
        modules=code_dependencies.inputs_for("archive_run.py"),
        run="results/run",
    output:
        archived="results/archived.txt",
    log:
        "logs/archive_run.log",
    group:
        "report"
    params:
        folder=CONFIG.archive or "reports/runs",
    message:
        "Archiving the run"
    shell:
        logged("python3 {input.program:q} --run {input.run:q} --folder {params.folder:q} --out {output.archived:q}")
