"""Streams: more images than the data set has, scattered over workers and gathered."""

from warpbook.workflow import streams

STREAM = PLAN.stream
STREAMED = f"results/stream/{STREAM.name}"


scattergather:
    shard=STREAM.shards,


rule prepare_stream:
    """The images that streams of a network read, resized: the data set several times over."""
    input:
        program=code_dependencies.program("prepare_stream.py"),
        modules=code_dependencies.inputs_for("prepare_stream.py"),
        images="results/data/{network}.npz",
    output:
        images="results/stream/images/{network}-{passes}.npy",
    log:
        "logs/prepare_stream/{network}-{passes}.log",
    group:
        "prepare"
    message:
        "Images of {wildcards.network} to stream, the data set {wildcards.passes} times"
    shell:
        logged(
            "python3 {input.program:q} --network {wildcards.network:q} --passes {wildcards.passes} --out {output.images:q}"
        )


rule predict_labels:
    """Labels of the first test images from the inference program: those that a stream must give."""
    input:
        program=code_dependencies.program("infer.py"),
        modules=lambda wildcards: code_dependencies.inputs_for("infer.py", wildcards.device),
        variant=lambda wildcards: TARGETS.files_for(wildcards.variant),
        images="results/data/{network}.npz",
        weights=lambda wildcards: TARGETS.weights(wildcards.network, wildcards.weights),
    output:
        labels="results/stream/labels/{device}/{network}-{weights}/{variant}-{size}.npy",
    log:
        "logs/predict_labels/{device}/{network}-{weights}/{variant}-{size}.log",
    group:
        lambda wildcards: wildcards.device
    resources:
        measuring=1,
        gres=lambda wildcards: GRES[wildcards.device],
        slurm_extra=lambda wildcards: SLURM_EXTRA[wildcards.device],
    params:
        rerun_on_device=lambda wildcards: PLAN.identity(wildcards.device),
    message:
        "Labels of {wildcards.network} by the program with {wildcards.variant}"
    shell:
        "python3 {input.program:q} --network {wildcards.network:q} --weights {wildcards.weights:q}"
        " --variant {wildcards.variant:q} --device {wildcards.device:q} --predictions {output.labels:q} {wildcards.size} > {log:q}"
        " 2> >(tee -a {log:q} >&2)"


rule stream_shard:
    """One shard, inferred by one worker alone on its device: labels, times and memory."""
    input:
        program=code_dependencies.program("stream_shard.py"),
        modules=code_dependencies.inputs_for("stream_shard.py", STREAM.device),
        variant=lambda wildcards: TARGETS.files_for(STREAM.variant),
        images=f"results/stream/images/{STREAM.network.name}-{STREAM.passes}.npy",
        program_labels=STREAM.program_labels,
    output:
        measured=f"{STREAMED}/{{scatteritem}}.measured.json",
        labels=f"{STREAMED}/{{scatteritem}}.labels.npy",
    log:
        f"logs/stream_shard/{STREAM.name}/{{scatteritem}}.log",
    retries: 1  # a worker that was killed
    group:
        STREAM.device
    threads: MEASURING_THREADS[STREAM.device]
    resources:
        measuring=1,
        gres=GRES[STREAM.device],
        slurm_extra=SLURM_EXTRA[STREAM.device],
    params:
        stream=json.dumps(STREAM.columns),
        rerun_on_device=PLAN.identity(STREAM.device),
    message:
        f"Streaming shard {{wildcards.scatteritem}} through {STREAM.variant}"
    shell:
        logged(
            "unset OMP_NUM_THREADS GOTO_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS;"
            " python3 {input.program:q} --began $(date +%s.%N) --stream {params.stream:q} --shard {wildcards.scatteritem}"
            " --images {input.images:q} --program {input.program_labels:q} --labels {output.labels:q} --out {output.measured:q}"
        )


rule gather_stream:
    """A stream's shards put together: a row for each, and one hash of all labels."""
    input:
        program=code_dependencies.program("gather_stream.py"),
        modules=code_dependencies.inputs_for("gather_stream.py"),
        measured=gather.shard(f"{STREAMED}/{{scatteritem}}.measured.json"),
        labels=gather.shard(f"{STREAMED}/{{scatteritem}}.labels.npy"),
    output:
        shards=STREAM.part,
    log:
        f"logs/gather_stream/{STREAM.name}.log",
    params:
        rerun_on_columns=code_dependencies.column_types(tables.STREAM_SHARDS),
    message:
        "Putting the shards together"
    shell:
        logged(
            "python3 {input.program:q} --shards {input.measured:q} --labels {input.labels:q} --out {output.shards:q}"
        )


rule stream:
    """Images streamed through the network: results/stream/streams.csv has this and earlier streams."""
    input:
        program=code_dependencies.program("report_streams.py"),
        shards=[] if STREAM.problem else sorted({STREAM.part, *streams.gather_tables()}),
    log:
        "logs/stream.log",
    params:
        problem=["--problem", STREAM.problem] if STREAM.problem else [],
    message:
        "What was streamed"
    shell:
        logged(
            "python3 {input.program:q} {params.problem:q} --shards {input.shards:q} --out results/stream/streams.csv"
        )
