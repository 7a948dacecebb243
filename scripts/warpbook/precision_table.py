"""The table of errors over the length of sums and the range of inputs."""

from warpbook.table import COUNT, POSITIVE, Column, Table

PRECISION = Table(
    "precision.csv",
    "one variant on one layer with inputs of one kind: its error against float64, and the direct convolution's",
    ("variant", "inputs", "layer"),
    {
        "variant": Column("string", "stem of the kernel's file"),
        "inputs": Column(
            "string",
            "reals: x and w in [-1, 1) with full mantissas; small, large: x times 2^-20, 2^20; mixed: each pixel times"
            " 2^e, e from -12 to 12; subnormal: x times 2^-130, w times 2^30; empty: none was tried",
        ),
        "layer": Column("string", "the convolution, as 6x30x30 * 16@5x5; empty: none was reached"),
        "precision": Column("string", "the class that the variant claims: fp32, tf32, fp16 or bf16"),
        "products": Column("Int64", "products in a sum, C*K*K", POSITIVE),
        "images": Column("Int64", "images of the call", POSITIVE),
        "rel_l2_err": Column("float64", "norm of the error over norm of the float64 result", COUNT, needed=True),
        "direct_rel_l2_err": Column("float64", "the same of `direct` on the same inputs", COUNT, needed=True),
        "fp32_class": Column("bool", "whether rel_l2_err is at most twice direct_rel_l2_err, and no output NaN"),
        "status": Column(
            "string", "ok, or unsupported, compile_failed, launch_failed, wrong_result, timed_out or refused"
        ),
        "reason": Column("string", "why the status is not ok, with value, limit and remedy; empty when ok"),
    },
    optional=True,
)
