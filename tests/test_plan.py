"""What a command measures."""

import pytest
import yaml

from warpbook import config, plan, variants
from warpbook.plan import Plan

KNOWN = variants.discover()


def made(**changes) -> Plan:
    values = yaml.safe_load(config.FILE.read_text()) | changes
    return Plan(config.load(values, list(KNOWN)), KNOWN, "no GPU in this test")


def test_studies_of_one_network_share_their_sizes():
    assert made(study="fa18-m1").sizes("fa18") == made(study="fa18").sizes("fa18") == [10, 100, 1000, 10000]


def test_starting_points_are_run_whole_at_every_size_and_optimizations_at_the_largest():
    planned = made(study="fa18")
    assert planned.program_sizes("fa18", "direct") == [10, 100, 1000, 10000]
    assert planned.program_sizes("fa18", "constant_weights") == [10000]


def test_a_study_may_name_the_optimizations_that_are_run_whole():
    planned = made(study="fa19")
    assert planned.program_sizes("fa19", "layer_specialised") == [10000]
    assert planned.program_sizes("fa19", "constant_weights") == []
    assert planned.program_sizes("fa19", "cudnn_fp32") == [10000]  # the framework
    assert planned.program_sizes("fa19", "cudnn_tf32") == []
    assert planned.program_sizes("fa19", "simd") == [10000]


def test_a_layer_that_a_study_draws_is_profiled_at_its_size_under_both_variants():
    planned = made(study="fa18")
    assert planned.profile_sizes("cupti", "fa18", "constant_weights") == [100, 10000]
    assert planned.profile_sizes("cupti", "fa18", "direct") == [10, 100, 1000, 10000]
    assert planned.profile_sizes("cupti", "fa18", "coarsened") == [10000]
    assert planned.profile_sizes("nsys", "fa18", "constant_weights") == [10000]


def test_every_weight_set_is_watched_with_starting_points_and_with_the_submission():
    planned = made(study="fa17-final")
    assert planned.profile_weights("cupti", "fa17", "direct") == ["low"]
    assert planned.profile_weights("cupti", "fa17", "constant_shapes") == ["low"]
    assert planned.profile_weights("cupti", "fa17", "layer_specialised") == []
    assert planned.profile_weights("nsys", "fa17", "direct") == []
    assert planned.profile_weights("cupti", "fa18", "direct") == []


@pytest.mark.parametrize(("cpu", "devices"), [("live", ["cpu"]), ("none", [])])
def test_the_cpu_can_be_left_out(cpu, devices):
    assert made(cpu=cpu).devices == devices


def test_no_device_and_gpu_live_is_an_error():
    with pytest.raises(plan.UserError, match="no GPU in this test"):
        _ = made(gpu="live").gpu_sources
