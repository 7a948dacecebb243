"""A door to scripts/compare_runs.py: `python scripts/compare_runs.py --base RUN --head RUN` does the same without Snakemake."""

# Snakemake knows success and failure alone. Where two runs could be compared, the job succeeds and leaves what the
# program's exit status was; this process then ends with it.
VERDICTS = ".verdict-"
VERDICT = Path(f"results/{VERDICTS}{os.getpid()}")


onsuccess:
    if VERDICT.exists():
        status = int(VERDICT.read_text())
        VERDICT.unlink()
        sys.exit(status)


rule compare:
    """What changed between two runs: ids of archived runs, or paths."""
    input:
        program=code_dependencies.program("compare_runs.py"),
    log:
        "logs/compare.log",
    localrule: True
    params:
        base=CONFIG.base,
        head=CONFIG.head,
        tolerance=CONFIG.tolerance,
        verdict=str(VERDICT),
    message:
        "Comparing two runs"
    shell:
        "python3 {input.program:q} --base={params.base:q} --head={params.head:q} --tolerance {params.tolerance:q}"
        " 2> >(tee {log:q} >&2) || {{ status=$?;"
        " (( status >= 3 && status <= 5 )) && echo $status > {params.verdict:q}; }}"
