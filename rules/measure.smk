"""This machine described, and op times and whole programs timed."""


rule probe_machine:
    """This machine, and the peak rates of its GPU."""
    input:
        program=code_dependencies.program("probe_machine.py"),
        modules=code_dependencies.inputs_for("probe_machine.py", "gpu" if PLAN.device else "cpu"),
    output:
        machine="results/parts/machine.json",
    log:
        "logs/probe_machine.log",
    priority: 1000  # outweighs every build: what it says of the start is the run's
    group:
        PROBED
    threads: workflow.cores
    resources:
        measuring=1,
        gres=GRES[PROBED],
        slurm_extra=SLURM_EXTRA[PROBED],
    params:
        gpu="yes" if PLAN.device else "no",
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Describing this machine"
    shell:
        logged("python3 {input.program:q} --gpu {params.gpu} --out {output.machine:q}")


# Snakemake has libraries use as many threads as a job was given cores. A CPU variant is measured with all that the
# machine has, whatever --cores says: hence `unset` in both commands. The report names the cores.


rule measure_variant:
    """One variant interleaved with its baseline, on every layer at every size: a row for each sample."""
    input:
        program=code_dependencies.program("measure_variant.py"),
        modules=lambda wildcards: code_dependencies.inputs_for("measure_variant.py", wildcards.device),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        baseline=lambda wildcards: TARGETS.baseline_files(wildcards.variant),
        machine="results/parts/machine.json",
        correctness="results/parts/correctness/{device}/{network}/{variant}.csv",
        baseline_correctness=lambda wildcards: TARGETS.baseline_check(**wildcards),
    output:
        samples="results/parts/samples/{device}/{network}/{variant}.csv.gz",
    log:
        "logs/measure_variant/{device}/{network}/{variant}.log",
    # First of all that is measured: where time ends early, these are what every page of a report rests on.
    priority: 1
    group:
        lambda wildcards: wildcards.device
    threads: lambda wildcards: MEASURING_THREADS[wildcards.device]
    resources:
        measuring=1,
        gres=lambda wildcards: GRES[wildcards.device],
        slurm_extra=lambda wildcards: SLURM_EXTRA[wildcards.device],
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        measuring=CONFIG.measuring.model_dump_json(),
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.SAMPLES),
        rerun_on_device=lambda wildcards: PLAN.identity(wildcards.device),
    message:
        "Timing {wildcards.variant} on {wildcards.network}"
    shell:
        logged(
            "unset OMP_NUM_THREADS GOTO_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS;"
            " python3 {input.program:q} --device {wildcards.device:q} --cases {wildcards.network:q}"
            " --variant {wildcards.variant:q} --sizes {params.sizes:q} --measuring {params.measuring:q}"
            " --correctness {input.correctness:q} --baseline-correctness {input.baseline_correctness:q}"
            " --machine {input.machine:q} --sandbox {params.sandbox:q} --out {output.samples:q}"
        )


ruleorder: measure_course > measure_variant


rule measure_course:
    """One file of the course timed with its own host code, at every size: a row for each sample."""
    input:
        program=code_dependencies.program("measure_course.py"),
        modules=code_dependencies.inputs_for("measure_course.py", "gpu"),
        variant=lambda wildcards: TARGETS.sources(wildcards.course_file),
        correctness="results/parts/correctness/gpu/{network}/{course_file}.csv",
    output:
        samples="results/parts/samples/gpu/{network}/{course_file}.csv.gz",
    log:
        "logs/measure_course/{network}/{course_file}.log",
    group:
        "gpu"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        timeout=CONFIG.measuring.timeout_s,
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.SAMPLES),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Timing {wildcards.course_file} with its own host code on {wildcards.network}"
    shell:
        logged(
            "python3 {input.program:q} --network {wildcards.network:q} --variant {wildcards.course_file:q}"
            " --sizes {params.sizes:q} --correctness {input.correctness:q} --timeout {params.timeout:q}"
            " --sandbox {params.sandbox:q} --out {output.samples:q}"
        )


rule measure_network:
    """One whole network checked, and timed interleaved with its baseline, at every size."""
    input:
        program=code_dependencies.program("measure_network.py"),
        modules=code_dependencies.inputs_for("measure_network.py", "gpu"),
        implementation=lambda wildcards: WHOLE.files_for(wildcards.implementation),
        machine="results/parts/machine.json",
        images="results/data/{network}.npz",
        scores=lambda wildcards: WHOLE.scores(wildcards.network),
    output:
        samples="results/parts/samples/gpu/{network}/network/{implementation}.csv.gz",
        checks="results/parts/correctness/gpu/{network}/network/{implementation}.csv",
    log:
        "logs/measure_network/{network}/{implementation}.log",
    group:
        "gpu"
    threads: MEASURING_THREADS["gpu"]
    resources:
        measuring=1,
        gres=GRES["gpu"],
        slurm_extra=SLURM_EXTRA["gpu"],
    params:
        sizes=lambda wildcards: PLAN.sizes(wildcards.network),
        weights=lambda wildcards: PLAN.weight_sets(wildcards.network)[0],
        measuring=CONFIG.measuring.model_dump_json(),
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.SAMPLES, tables.CORRECTNESS),
        rerun_on_device=PLAN.identity("gpu"),
    message:
        "Timing the whole network {wildcards.network} by {wildcards.implementation}"
    shell:
        logged(
            "python3 {input.program:q} --network {wildcards.network:q} --weights {params.weights:q}"
            " --implementation {wildcards.implementation:q} --sizes {params.sizes:q} --measuring {params.measuring:q}"
            " --scores {input.scores:q} --machine {input.machine:q} --sandbox {params.sandbox:q}"
            " --samples {output.samples:q} --checks {output.checks:q}"
        )


rule run_program:
    """The whole inference program with one variant: a row for each run."""
    input:
        program=code_dependencies.program("run_program.py"),
        modules=lambda wildcards: code_dependencies.inputs_for("run_program.py", wildcards.device),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        images="results/data/{network}.npz",
        correctness="results/parts/correctness/{device}/{network}/{variant}.csv",
    output:
        programs="results/parts/programs/{device}/{network}/{variant}.csv",
    log:
        "logs/run_program/{device}/{network}/{variant}.log",
    group:
        lambda wildcards: wildcards.device
    threads: lambda wildcards: MEASURING_THREADS[wildcards.device]
    resources:
        measuring=1,
        gres=lambda wildcards: GRES[wildcards.device],
        slurm_extra=lambda wildcards: SLURM_EXTRA[wildcards.device],
    params:
        sizes=lambda wildcards: PLAN.program_sizes(wildcards.network, wildcards.variant),
        repeat=lambda wildcards: "--repeat" if PLAN.repeats_programs(wildcards.variant) else "",
        weights=lambda wildcards: PLAN.weight_sets(wildcards.network),
        measuring=CONFIG.measuring.model_dump_json(),
        sandbox=CONFIG.sandbox,
        rerun_on_columns=code_dependencies.column_types(tables.PROGRAMS),
        rerun_on_device=lambda wildcards: PLAN.identity(wildcards.device),
    message:
        "Running the whole program with {wildcards.variant} on {wildcards.network}"
    shell:
        logged(
            "unset OMP_NUM_THREADS GOTO_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS;"
            " python3 {input.program:q} --network {wildcards.network:q} --weights {params.weights:q}"
            " --variant {wildcards.variant:q} --sizes {params.sizes:q} --measuring {params.measuring:q}"
            " {params.repeat} --correctness {input.correctness:q} --sandbox {params.sandbox:q}"
            " --out {output.programs:q}"
        )
