"""Tables of streams: of shards, which a run holds, and of whole streams, which follow from those."""

from warpbook.table import COUNT, POSITIVE, Column, Table

_STREAM = {
    "network": Column("string", "network whose shapes it is"),
    "variant": Column("string", "stem of the kernel's file"),
    "images": Column("int64", "images of the stream: those of the data set again and again", POSITIVE),
    "shards": Column("int64", "parts of the stream that a worker each infers", POSITIVE),
    "workers": Column("int64", "workers that may run at a time: GPUs; 1 on a CPU, whose cores one takes", POSITIVE),
    "device": Column("string", "cpu or gpu"),
}
_STREAM_SHA256 = Column("string", "SHA-256 of the labels of the whole stream, a byte each, in its order")

STREAM_SHARDS = Table(
    "stream_shards.csv",
    "one shard of a stream of images: what one worker inferred",
    ("network", "variant", "images", "shards", "workers", "shard"),
    {
        **_STREAM,
        "weights": Column("string", "weight set"),
        "stream_sha256": _STREAM_SHA256,
        "shard": Column("int64", "number of the shard, from 1", POSITIVE),
        "first": Column("int64", "its first image", COUNT),
        "end": Column("int64", "the image that follows its last", POSITIVE),
        "measured_on": Column("string", "node and, for a GPU, its UUID hashed, first 12 digits: node7/3f2a1c4d5e6f"),
        "chunk": Column("int64", "images that were inferred at a time", POSITIVE),
        "labels_sum": Column("int64", "sum of its labels", COUNT),
        "labels_sha256": Column("string", "SHA-256 of its labels, a byte each"),
        "mismatched_labels": Column(
            "int64", "images whose label is not that which infer.py predicts with this variant", COUNT
        ),
        "began_s": Column("float64", "start of the worker's process, after the start of the stream's first", COUNT),
        "first_read_s": Column("float64", "when it began to read images, likewise", COUNT),
        "ended_s": Column("float64", "when its last label was written, likewise", COUNT),
        "start_s": Column(
            "float64", "what the worker needed before: Python, libraries, device, weights, a first chunk", COUNT
        ),
        "waited_s": Column("float64", "how long it waited for its device meanwhile, no part of start_s", COUNT),
        "read_s": Column("float64", "time in which it read images", COUNT),
        "copy_s": Column("float64", "time of copies to and from the device; beside the rest. Empty on a CPU", COUNT),
        "compute_s": Column("float64", "time of the network; on a GPU beside the rest", COUNT),
        "device_bytes": Column("Int64", "most device memory in use, as the driver counts it; empty on a CPU", COUNT),
        "max_rss_kib": Column("int64", "peak resident memory of the worker", COUNT),
    },
    optional=True,
    ascending=("began_s", "first_read_s", "ended_s"),
)

STREAMS = Table(
    "streams.csv",
    "one stream of images",
    ("network", "variant", "images", "shards", "workers"),
    {
        **_STREAM,
        "stream_sha256": _STREAM_SHA256,
        "devices": Column("int64", "devices that had a shard", POSITIVE),
        "wall_s": Column("float64", "time in which any worker ran, its start within", POSITIVE),
        "images_per_s": Column("float64", "images over wall_s", POSITIVE),
        "efficiency": Column(
            "float64", "images_per_s over that of one device times the devices; empty: that was not streamed", POSITIVE
        ),
        "streaming_s": Column("float64", "time in which any worker was past its start", POSITIVE),
        "streaming_images_per_s": Column("float64", "images over streaming_s", POSITIVE),
        "streaming_efficiency": Column("float64", "as efficiency, of streaming_images_per_s", POSITIVE),
        "start_s": Column("float64", "mean of its workers, as in stream_shards, as the three that follow", COUNT),
        "read_s": Column("float64", "time in which a worker read images", COUNT),
        "copy_s": Column("float64", "time of copies to and from the device", COUNT),
        "compute_s": Column("float64", "time of the network", COUNT),
        "device_bytes": Column("Int64", "most device memory of a worker", COUNT),
        "max_rss_kib": Column("int64", "most resident memory of a worker", COUNT),
        "labels_sum": Column("int64", "sum of all labels", COUNT),
        "mismatched_labels": Column("int64", "labels that are not the inference program's", COUNT),
    },
)
"""Not among RUN_TABLES: it follows from STREAM_SHARDS (`streams.summarised`)."""
