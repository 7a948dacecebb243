"""What a command measures."""

import copy
import itertools

import numpy as np
import pytest
import yaml

import onnx_networks
from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.machine.cuda_devices import Device
from warpbook.workflow import plan
from warpbook.workflow.plan import Plan
from warpbook.workflow.targets import Targets

KNOWN = variants.discover()
VALUES = yaml.safe_load(settings.FILE.read_text())


def load(**changes) -> settings.Config:
    return settings.load(copy.deepcopy(VALUES) | changes, list(KNOWN))


def made(**changes) -> Plan:
    return Plan(load(**changes), KNOWN, "no GPU in this test")


def test_studies_of_one_network_share_their_sizes():
    assert made(study="fa18-m1").sizes("fa18") == made(study="fa18").sizes("fa18") == [10, 100, 1000, 10000]


def test_several_studies_are_made_together_and_nothing_besides():
    target = {"arch": "sm_90", "memory_gib": 80}

    def parts(study: str) -> list[str]:
        return Targets(
            plan.build(load(study=study, target=target, optional_measurements=["aa", "precision"]), KNOWN)
        ).parts

    together = parts("fa18,fa19")
    assert set(together) == {*parts("fa18"), *parts("fa19")}
    assert len(together) == len(set(together))
    assert made(study="fa18, fa19").networks == ["fa18", "fa19"]
    each = [parts(name) for name, study in load().studies.items() if not (study.course or study.by_name)]
    assert set(parts("all")) == set(itertools.chain.from_iterable(each))


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


def test_every_gpu_variant_is_counted_also_where_its_program_is_not_watched_or_weights_are_missing():
    for study, profiler in itertools.product(("fa17-final", "sp19", "gemm"), ("ncu", "cupti")):
        target = {"arch": "sm_90", "memory_gib": 80, "profilers": [profiler]}
        made = Targets(plan.build(load(study=study, target=target), KNOWN))
        counted = {f"results/parts/counters/gpu/{place}.csv" for place in made.places("gpu")}
        assert counted <= {*made.counters} if profiler == "ncu" else made.counters == []


def test_nsight_systems_watches_starting_points_frameworks_and_submissions_beside_cupti():
    target = {"arch": "sm_90", "memory_gib": 80, "profilers": ["cupti", "nsys"]}
    planned = plan.build(load(study="fa18", target=target), KNOWN)
    watched = {path.split("results/parts/profiles/nsys/gpu/fa18/")[-1] for path in Targets(planned).profiles}
    shown = {"direct", "cudnn_fp32", "constant_weights_shared_input", "unroll_gemm_streams"}
    assert {path for path in watched if "/" not in path} == {f"{name}.csv" for name in shown}
    assert planned.profile_sizes("nsys", "fa18", "direct") == [10000]
    assert Targets(planned).baseline_profile("nsys", "fa18", "unroll_gemm_streams") == []
    assert len(Targets(planned).baseline_profile("cupti", "fa18", "unroll_gemm_streams")) == 1
    alone = plan.build(load(study="fa18", target={**target, "profilers": ["nsys"]}), KNOWN)
    assert alone.profile_sizes("nsys", "fa18", "shared_input") == [10000]


def test_a_layer_that_a_study_draws_is_profiled_at_its_size_under_both_variants():
    planned = made(study="fa18")
    assert planned.profile_sizes("cupti", "fa18", "constant_weights") == [100, 10000]
    assert planned.profile_sizes("cupti", "fa18", "direct") == [10, 100, 1000, 10000]
    assert planned.profile_sizes("cupti", "fa18", "shared_input") == [10000]
    assert planned.profile_sizes("cupti", "fa18", "coarsened") == []  # the study names other programs


def test_a_study_of_few_variants_wants_no_other_s_program():
    studies = VALUES["studies"] | {"fa18": VALUES["studies"]["fa18"] | {"programs": []}}
    of_few = studies | {"few": studies["fa18-m1"] | {"variants": ["coarsened"]}}
    planned = plan.build(load(study="fa18", studies=of_few), KNOWN)
    assert planned.program_sizes("fa18", "coarsened") == [10000]
    assert planned.program_sizes("fa18", "shared_input") == []


def test_every_weight_set_is_watched_with_starting_points_and_with_the_submission():
    planned = made(study="fa17-final")
    assert planned.profile_weights("cupti", "fa17", "direct") == ["low"]
    assert planned.profile_weights("cupti", "fa17", "constant_shapes") == ["low"]
    assert planned.profile_weights("cupti", "fa17", "layer_specialised") == []
    assert planned.profile_weights("nsys", "fa17", "direct") == []
    assert planned.profile_weights("cupti", "fa18", "direct") == []


def test_the_cpu_can_be_left_out():
    for cpu, devices in [("live", ["cpu"]), ("none", [])]:
        assert made(cpu=cpu).devices == devices


def test_a_machine_without_a_gpu_plans_for_the_one_that_the_target_describes():
    target = {"arch": "sm_86", "name": "A GPU", "memory_gib": 24, "profilers": ["cupti", "ncu"]}
    planned = plan.build(load(target=target), KNOWN)
    assert planned.devices == ["cpu", "gpu"]
    assert planned.architectures[-1] == "sm_86"
    assert planned.profilers == ["cupti", "ncu"]
    assert planned.gpu_sources["fa18"].why == "the measuring nodes' A GPU"
    assert plan.build(load(target=target, gpu="none"), KNOWN).devices == ["cpu"]


def test_a_target_that_cannot_be_is_named():
    for target, words in [
        ({"memory_gib": 24}, "target: it names neither an architecture"),
        ({"arch": "ninety"}, "'ninety' is no architecture of the form sm_90"),
        ({"arch": "sm_90", "profiler": []}, "target.profiler: unknown key: did you mean 'profilers'"),
    ]:
        with pytest.raises(plan.UserError, match=words):
            plan.build(load(target=target), KNOWN)


def test_no_device_and_gpu_live_is_an_error():
    with pytest.raises(plan.UserError, match="no GPU in this test"):
        _ = made(gpu="live").gpu_sources


GPU = Device("A GPU", "sm_90", "ab" * 32, "13.0")


def test_as_many_gpus_share_the_jobs_as_are_wanted():
    for wanted, shared in [(1, 1), (2, 2), ("all", 3)]:
        assert Plan(load(gpus=wanted), KNOWN, GPU, other_devices=(GPU, GPU)).gpus == shared
        assert made(gpus=wanted).gpus == 1  # none is here


def test_more_gpus_than_are_here_are_refused_and_those_of_a_target_have_to_be_counted():
    with pytest.raises(UserError, match=r"gpus: 4, and the devices here are 3 of A GPU, sm_90: set gpus to 3 at most"):
        _ = Plan(load(gpus=4), KNOWN, GPU, other_devices=(GPU, GPU)).gpus
    target = {"arch": "sm_90"}
    assert plan.build(load(gpus=4, target=target), KNOWN).gpus == 4
    with pytest.raises(UserError, match=r"say how many \(gpus: 4\)"):
        _ = plan.build(load(gpus="all", target=target), KNOWN).gpus


def values_of(network, sizes):
    """The configuration's values with a study of a network that is described so."""
    values = copy.deepcopy(VALUES)
    values["networks"]["mine"] = network
    values["studies"]["mine"] = {"title": "Mine", "network": "mine", "sizes": sizes, "sections": ["analysis"]}
    return {**values, "study": "mine"}


def test_a_study_of_own_images_takes_no_more_than_there_are_and_streams_none(tmp_path):
    np.save(tmp_path / "images.npy", np.zeros((20, 9, 9), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(20) % 3)
    network = {
        "input": {"size": 9, "data": str(tmp_path / "images.npy"), "labels": str(tmp_path / "labels.npy")},
        "layers": [{"conv": {"out_channels": 2, "kernel_size": 3}}, {"fc": {"out_features": 3}}],
    }
    assert plan.from_config(values_of(network, [5, 20])).config.networks["mine"].input.data
    with pytest.raises(UserError, match=r"studies.mine.sizes.1: 21 is outside 1 to 20, the images of mine"):
        plan.from_config(values_of(network, [5, 21]))
    found = Plan(settings.load(values_of(network, [5, 20]), list(KNOWN)), KNOWN, "no GPU in this test")
    assert (
        found.stream.problem == "mine has images of its own, and a stream repeats Fashion-MNIST's; choose another study"
    )
    assert Targets(found).image_files("mine") == [str(tmp_path / name) for name in ("images.npy", "labels.npy")]
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(UserError, match=r"labels\.npy cannot be read"):
        plan.from_config(values_of(network, [5]))


def test_weights_of_a_network_from_a_file_are_that_file(tmp_path):
    path = onnx_networks.lenet(tmp_path / "lenet.onnx")
    found = Plan(settings.load(values_of({"onnx": str(path)}, [5]), list(KNOWN)), KNOWN, "no GPU in this test")
    assert found.weight_sets("mine") == ["trained"]
    assert Targets(found).weights("mine", "trained") == str(path)
    assert Targets(found).weights("fa17", "low") == "weights/fa17-low.npz"


def test_a_variant_whose_limits_exclude_a_study_is_told_unless_it_is_for_every_case_within_them(monkeypatch):
    target = {"arch": "sm_90", "memory_gib": 80}
    planned = plan.build(load(study="fa18", target=target), KNOWN)
    assert "implicit_gemm" not in planned.variants_for("fa18", "gpu")
    assert "implicit_gemm" in plan.build(load(study="layers", target=target), KNOWN).variants_for("layers", "gpu")
    narrow = KNOWN["implicit_gemm"].header.model_copy(update={"every_case": False})
    monkeypatch.setitem(vars(KNOWN["implicit_gemm"]), "header", narrow)
    assert "implicit_gemm" in planned.variants_for("fa18", "gpu")
