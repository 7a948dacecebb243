"""Names that runs archived before a renaming hold, read as today's.

What a run measured is matched by the hash of its sources, so a kernel whose file alone was renamed keeps its times.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

VARIANTS = {
    "split_fp16": "fp16x3_mma",
    "split_reuse": "fp16x3_wgmma",
    "taps_unrolled": "unrolled_kernel_loops",
    "grid_images_maps": "grid_images_channels",
    "folded": "fused_conv_fc_algebra",
    "fused": "fused_mma",
    "library": "fused_cublas",
    "one_by_one": "unfused",
    "warpgroups": "fused_wgmma",
}
MEASURING = {
    "relative_noise": "target_rel_ci",
    "same_within": "equivalence_margin",
    "budget_s": "max_time_s",
    "patience_s": "min_samples_timeout_s",
}
FORMER = "former_names"
"""The key of a record whose run's tables hold former names, too."""
_NAME = re.compile(r"(?<![^/:])(" + "|".join(VARIANTS) + r")(?![^/:])")


def variant_today(text: str) -> str:
    """A variant's name, alone or as a part of `networks/fused`, `aa:fused` or `samples/gpu/fa18/fused`."""
    return _NAME.sub(lambda match: VARIANTS[match[1]], text)


def record_today(record: Any) -> Any:
    """run.json under today's names; what is no run.json is left to whoever checks it."""
    if not isinstance(record, dict) or not isinstance(measuring := record.get("measuring"), dict):
        return record
    if not MEASURING.keys() & measuring.keys():
        return record
    known = record.get("variants")
    named = {variant_today(name): facts for name, facts in known.items()} if isinstance(known, dict) else known
    return {**record, "measuring": _renamed_keys(measuring), "variants": named, FORMER: True}


def table_today(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table under today's names of variants."""
    for column in {"variant", "job", "part"} & set(frame.columns):
        former = {name: today for name in frame[column].unique() if (today := variant_today(str(name))) != name}
        if former:
            frame = frame.assign(**{column: frame[column].replace(former)})
    return frame


def _renamed_keys(values: dict[str, Any]) -> dict[str, Any]:
    return {
        MEASURING.get(key, key): _renamed_keys(value) if isinstance(value, dict) else value
        for key, value in values.items()
    }
