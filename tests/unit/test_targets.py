"""The files that a command makes, with a GPU and without one."""

import copy

import yaml

from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.machine.cuda_devices import Device
from warpbook.runs.catalog import Run
from warpbook.workflow.optional_measurements import OPTIONAL_PARTS
from warpbook.workflow.plan import GpuSource, Plan
from warpbook.workflow.targets import Targets

KNOWN = variants.discover()
VALUES = yaml.safe_load(settings.FILE.read_text())
GPU = Device("A GPU", "sm_90", "ab" * 32, "13.0")


FILE = PROJECT / "tests" / "data" / "course" / "fused_wmma.cu"


def targets(probed=GPU, known=KNOWN, **changes) -> Targets:
    values = copy.deepcopy(VALUES) | {"profilers": []} | changes
    return Targets(Plan(settings.load(values, list(known)), known, probed))


NO_GPU = "no GPU in this test"


def test_a_place_is_a_variant_on_a_network_and_baselines_come_first():
    places = targets(study="fa18").places("gpu")
    assert places.index("fa18/direct") < places.index("fa18/constant_weights")
    assert "fa18/simd" not in places


def test_whole_programs_are_run_only_where_the_weights_are_here():
    assert targets(study="fa18").places("cpu", programs=True)
    assert targets(study="sp19").places("cpu")
    assert targets(study="sp19").places("cpu", programs=True) == []


def test_on_a_gpu_every_variant_is_checked_on_it_whatever_the_study_compares():
    checks = targets(study="fa18-m1").checks
    assert "results/parts/correctness/gpu/fa18/fft.csv" in checks
    assert not any("/emulator/" in path for path in checks)
    assert len(checks) == len(set(checks))


def test_without_a_gpu_the_kernels_that_the_study_compares_are_checked_by_emulation():
    checks = targets(NO_GPU, study="fa17-checkpoints").checks
    assert "results/parts/correctness/emulator/fa17/direct.csv" in checks
    assert "results/parts/correctness/emulator/fa17/fft.csv" not in checks
    assert not any("/gpu/" in path for path in checks)


def test_a_kernel_that_the_cited_run_found_right_on_a_gpu_is_emulated_by_check_alone(tmp_path, monkeypatch):
    plan = targets(NO_GPU, study="fa18").plan
    direct, changed, wrong = (
        f"results/parts/correctness/emulator/fa18/{name}.csv" for name in ("direct", "fft", "coarsened")
    )
    tests = [("direct", "true", "ok"), ("direct", "false", "unsupported"), ("fft", "true", "ok"),
             ("coarsened", "true", "ok"), ("coarsened", "false", "wrong_result")]  # fmt: skip
    rows = [f"fa18/conv1,{name},gpu,{ok},{status}\n" for name, ok, status in tests]
    (tmp_path / "correctness.csv").write_text("case,variant,device,ok,status\n" + "".join(rows))
    sources = {name: {"source_sha256": KNOWN[name].source_sha256} for name in ("direct", "coarsened")}
    record = {"variants": sources | {"fft": {"source_sha256": "of another source"}}}
    for shapes in (plan.config.case_set("fa18").shapes_sha256, "of other shapes"):
        networks, machine = {"fa18": {"shapes_sha256": shapes}}, {"gpu": {"arch": "sm_90"}}
        run = Run(tmp_path, record | {"networks": networks, "machine": machine})
        monkeypatch.setattr(Plan, "gpu_sources", {"fa18": GpuSource(None, run, "")})
        made = Targets(plan)
        assert {direct, changed, wrong} <= {*made.checks}
        assert {changed, wrong} <= {*made.parts} and (direct in made.parts) == (shapes == "of other shapes")


def test_a_kernel_that_every_cited_run_built_unchanged_is_built_by_check_alone(tmp_path, monkeypatch):
    plan = targets(NO_GPU, study="fa18").plan
    known = {name: KNOWN[name].source_sha256 for name in ("direct", "coarsened", "fp16", "fp16x3_mma")}
    runs = []
    for number, (missing, failed) in enumerate([("sm_75", ""), ("", "fp16")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = [
            f"{name},{arch},{'true' if name != failed else 'false'}\n"
            for name in [*known, "fft"]
            for arch in plan.architectures
            if (name, arch) != ("coarsened", missing) and KNOWN[name].supports_arch(arch)
        ]
        (folder / "builds.csv").write_text("variant,arch,ok\n" + "".join(rows))
        sources = {name: {"source_sha256": sha256} for name, sha256 in known.items()}
        runs.append(Run(folder, {"variants": sources | {"fft": {"source_sha256": "of another source"}}}))
    made = Targets(plan)
    assert not KNOWN["fp16x3_mma"].supports_arch("sm_75")
    both = {"direct", "fp16x3_mma"}
    for cited, left_out in ((runs[:1], {*both, "fp16"}), (runs[1:], {*both, "coarsened"}), (runs, both)):
        monkeypatch.setattr(Plan, "gpu_sources", {str(run.path): GpuSource(None, run, "") for run in cited})
        monkeypatch.delitem(plan.__dict__, "built_in_archive", raising=False)
        assert {*made.builds} - {*made.builds_of_run} == {f"results/builds/{name}" for name in left_out}
    lacking = GpuSource(None, None, "no run is there")
    for sources in ({"fa18": lacking}, {"fa18": GpuSource(None, runs[0], ""), "fa19": lacking}):
        monkeypatch.setattr(Plan, "gpu_sources", sources)
        monkeypatch.delitem(plan.__dict__, "built_in_archive")
        assert made.builds_of_run == made.builds
    assert targets(study="fa18").builds_of_run == targets(study="fa18").builds


def test_the_cpu_left_out_leaves_the_gpu_s_parts():
    assert {path.split("/")[3] for path in targets(cpu="none").samples} <= {"gpu"}
    assert {path.split("/")[3] for path in targets(NO_GPU).samples} == {"cpu"}


def test_an_optional_measurement_is_made_where_it_is_wanted_and_there_is_a_gpu():
    for extra in OPTIONAL_PARTS:
        with_it, without = targets(optional_measurements=[extra]), targets(optional_measurements=[])
        assert len(set(with_it.parts) - set(without.parts)) == len(with_it.optional_parts) > 0
        assert {path.split("/")[2].split(".")[0] for path in with_it.optional_parts} == {extra}
        on_cpu = ["results/parts/pairs/cpu.csv"] if extra == "pairs" else []
        assert without.optional_parts == [] and targets(NO_GPU, optional_measurements=[extra]).optional_parts == on_cpu


def test_a_a_tests_are_of_the_starting_points():
    made = targets(study="fa18", optional_measurements=["aa"]).optional_parts
    assert "results/parts/aa/gpu/fa18/direct.csv.gz" in made
    assert "results/parts/aa/gpu/fa18/constant_weights.csv.gz" not in made


def test_each_of_several_gpus_makes_a_a_tests_of_its_own():
    values = copy.deepcopy(VALUES) | {"study": "fa18", "optional_measurements": ["aa"], "gpus": 2}
    made = Targets(Plan(settings.load(values, list(KNOWN)), KNOWN, GPU, other_devices=(GPU,))).optional_parts
    assert {"results/parts/aa/gpu-0/fa18/direct.csv.gz", "results/parts/aa/gpu-1/fa18/direct.csv.gz"} <= set(made)
    assert len(made) == 2 * len(targets(study="fa18", optional_measurements=["aa"]).optional_parts)


def test_only_variants_that_name_parameters_are_swept():
    swept = {
        path.rpartition("/")[2].removesuffix(".csv") for path in targets(optional_measurements=["sweep"]).optional_parts
    }
    assert swept == {name for name, variant in KNOWN.items() if variant.header.sweep and variant.cuda_source}


def test_compute_sanitizer_is_run_over_whole_networks_that_have_kernels_of_ours_where_weights_are_here():
    def whole(study):
        found = targets(study=study, optional_measurements=["sanitizer"]).optional_parts
        return {path.removesuffix(".csv").partition("/network/")[2] for path in found} - {""}

    assert {"unfused", "fused_mma", "fused_conv_fc_algebra", "fused_cublas", "fused_wgmma"} <= whole("fa18")
    assert not whole("fa18") & {"eager_fp32", "compiled_tf32"}
    assert whole("sp19") == set()


def test_errors_are_those_of_variants_that_do_not_sum_plainly_of_what_they_build_on_and_of_direct():
    made = {
        path.rpartition("/")[2].removesuffix(".csv")
        for path in targets(study="fa17-final,fa18,fa19,sp19", optional_measurements=["precision"]).optional_parts
    }
    assert made == {
        "direct", "layer_specialised", "fp16x3_mma", "fp16x3_wgmma", "register_tiled_gemm", "tensor_cores", "fp16",
        "fft", "cudnn_fp32", "cudnn_tf32",
    }  # fmt: skip


def test_errors_are_those_of_every_variant_where_sums_are_of_no_products():
    made = set(targets(study="gemm,reduce", optional_measurements=["precision"]).optional_parts)
    for name, variant in KNOWN.items():
        if variant.device == "gpu" and name.startswith("reduce/"):
            assert f"results/parts/precision/{name}.csv" in made
    assert "results/parts/precision/gemm/fp16x3_mma.csv" in made
    assert "results/parts/precision/gemm/tiled.csv" not in made


def test_a_variant_is_measured_from_its_sources_and_on_a_gpu_from_its_builds():
    assert targets().files_for("constant_weights") == [
        "kernels/conv/constant_weights.cu",
        "kernels/conv/constant_weights.py",
        "results/builds/constant_weights",
    ]
    assert targets(NO_GPU).files_for("direct") == ["kernels/conv/direct.cu"]
    assert targets().files_for("simd") == ["kernels/conv/simd.py"]


def test_a_baseline_is_measured_with_and_a_starting_point_has_none():
    made = targets()
    assert made.baseline_files("constant_weights") == [
        "kernels/conv/direct.cu",
        "results/builds/direct",
    ]
    assert made.baseline_check("gpu", "fa18", "constant_weights") == ["results/parts/correctness/gpu/fa18/direct.csv"]
    assert made.baseline_files("direct") == made.baseline_check("gpu", "fa18", "direct") == []
    assert made.baseline_profile("cupti", "fa18", "constant_weights") == [
        "results/parts/profiles/cupti/gpu/fa18/direct.csv"
    ]


def test_templates_are_those_of_the_report_not_of_a_comparison():
    templates = targets().templates
    assert "reports/report.html.j2" in templates
    assert "reports/narrative/fa18.md" in templates
    assert not any("compare." in path for path in templates)


def test_parts_of_a_gpu_know_its_model_on_whichever_node_and_those_of_the_cpu_none():
    elsewhere = Device("A GPU", "sm_90", "cd" * 32, "13.1")
    assert targets().plan.identity("gpu") == targets(elsewhere).plan.identity("gpu") == "A GPU, sm_90"
    assert targets(Device("Another", "sm_90", "ab" * 32, "13.0")).plan.identity("gpu") == "Another, sm_90"
    assert targets().plan.identity("cpu") == targets(NO_GPU).plan.identity("gpu") == ""


def test_a_file_of_the_course_is_timed_on_the_course_s_network_whether_or_not_the_study_lists_it():
    with_it = KNOWN | {FILE.stem: variants.read(FILE.stem, FILE.parent)}
    timed = "results/parts/samples/gpu/ece408/fused_wmma.csv.gz"
    assert targets(known=with_it, study="ece408").samples.count(timed) == 1
    assert timed in targets(known=with_it, study="ece408").parts
    for others in (targets(known=with_it, study="fa18"), targets(NO_GPU, known=with_it, study="ece408")):
        assert not any("fused_wmma" in path for path in others.samples)
    emulated = "results/parts/correctness/emulator/ece408/fused_wmma.csv"
    assert targets(NO_GPU, known=with_it, study="ece408").checks.count(emulated) == 1


def test_a_file_of_the_course_is_no_program_and_no_starting_point():
    with_it = KNOWN | {FILE.stem: variants.read(FILE.stem, FILE.parent)}
    wanted = targets(known=with_it, study="all", optional_measurements=["aa"])
    assert not any("fused_wmma" in path for path in [*wanted.programs, *wanted.optional_parts, *wanted.counters])
