"""Names of runs archived before a renaming."""

import pandas as pd
import pytest

from warpbook.runs import former_names


@pytest.mark.parametrize(
    ("recorded", "today"),
    [
        ("split_fp16", "fp16x3_mma"),
        ("networks/fused", "networks/fused_mma"),
        ("aa:folded", "aa:fused_conv_fc_algebra"),
        ("samples/gpu/fa18/split_reuse", "samples/gpu/fa18/fp16x3_wgmma"),
        ("fused_unroll_gemm", "fused_unroll_gemm"),
        ("direct", "direct"),
    ],
)
def test_a_variant_renamed_since_has_its_name_of_today_wherever_it_stands(recorded, today):
    assert former_names.variant_today(recorded) == today
    frame = pd.DataFrame({"variant": [recorded], "part": [recorded], "time_ms": [1.0]})
    assert former_names.table_today(frame).loc[0].to_list() == [today, today, 1.0]


def test_a_record_s_policy_and_variants_have_their_names_of_today_at_every_depth():
    record = {
        "measuring": {"relative_noise": 0.01, "gpu": {"budget_s": 1, "warmup": 1}},
        "variants": {"split_fp16": {"peer": False}},
    }
    read = former_names.record_today(record)
    assert read["measuring"] == {"target_rel_ci": 0.01, "gpu": {"max_time_s": 1, "warmup": 1}}
    assert read["variants"] == {"fp16x3_mma": {"peer": False}} and former_names.FORMER in read


def test_a_record_under_names_of_today_is_left_as_it_is():
    record = {"measuring": {"target_rel_ci": 0.01}, "variants": {"fused": {}}}
    assert former_names.record_today(record) is record
    assert former_names.record_today([1]) == [1]
