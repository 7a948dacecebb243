"""Images, and the labels that variants' answers are counted against."""


rule prepare_data:
    """Fashion-MNIST's test images, resized for one network, or the network's own."""
    input:
        program=code_dependencies.program("prepare_data.py"),
        modules=code_dependencies.inputs_for("prepare_data.py"),
        files=lambda wildcards: TARGETS.image_files(wildcards.network),
    output:
        images="results/data/{network}.npz",
    log:
        "logs/prepare_data/{network}.log",
    priority: 3  # what waits for it takes longest of all checks
    group:
        "prepare"
    params:
        rerun_on_network=lambda wildcards: CONFIG.network(wildcards.network).shapes_sha256,
    message:
        "Images for {wildcards.network}"
    shell:
        logged("python3 {input.program:q} --network {wildcards.network:q} --out {output.images:q}")


rule label_images:
    """Scores and labels of test images, by a float64 network: the reference of variants and whole networks."""
    input:
        program=code_dependencies.program("label_images.py"),
        modules=code_dependencies.inputs_for("label_images.py"),
        images="results/data/{network}.npz",
        weights=lambda wildcards: TARGETS.weights(wildcards.network, wildcards.weights),
    output:
        labels="results/data/{network}-{weights}.labels.npy",
        scores="results/data/{network}-{weights}.scores.npy",
    log:
        "logs/label_images/{network}-{weights}.log",
    priority: 3  # what waits for it takes longest of all checks
    group:
        "prepare"
    params:
        # Whole networks on a GPU are compared on all.
        images=lambda wildcards: "" if TARGETS.on_gpu else f"--images {max(PLAN.sizes(wildcards.network))}",
    message:
        "Reference scores of {wildcards.network} in float64"
    shell:
        logged(
            "python3 {input.program:q} --network {wildcards.network:q} --weights {wildcards.weights:q} {params.images}"
            " --labels {output.labels:q} --scores {output.scores:q}"
        )
