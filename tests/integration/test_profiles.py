"""What profiles for clusters ask of them, planned on a machine without a GPU for nodes that have one."""

import re
import subprocess
import sys

import pytest
import yaml

from warpbook.common.files import PROJECT

GROUPS = {"prepare", "cpu", "gpu", "counters", "report"}
PLANNED = ["archive", "--config", "target={arch: sm_90, profilers: [cupti, ncu]}", "study=fa18-m1"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Dry-run a profile, without the executor's own settings where that is not installed, and read each job's group,
    rule and resources."""

    pytest.importorskip("snakemake_executor_plugin_slurm", reason="snakemake-executor-plugin-slurm is not installed")

    def plan(name: str, executor: str, *more: str) -> list[tuple[str, str, dict[str, str]]]:
        content = yaml.safe_load((PROJECT / "profiles" / name / "config.yaml").read_text())
        folder = tmp_path_factory.mktemp(name)
        kept = {key: value for key, value in content.items() if not key.startswith(executor) and key != "executor"}
        (folder / "config.yaml").write_text(yaml.safe_dump(kept))
        # A job's message stands in place of its resources.
        (folder / "rules").mkdir()
        (folder / "scripts").symlink_to(PROJECT / "scripts")
        for path in [PROJECT / "Snakefile", *(PROJECT / "rules").glob("*.smk")]:
            without = re.sub(r"^    message:\n        .*\n", "", path.read_text(), flags=re.MULTILINE)
            (folder / path.relative_to(PROJECT)).write_text(without)
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(folder / "Snakefile")]
        command += ["--dry-run", "--forceall", "--workflow-profile", "none"]
        command += ["--nolock", "--profile", str(folder), "--executor", "slurm", *PLANNED, *more]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return list(jobs(done.stdout + done.stderr))

    return plan


def jobs(words: str):
    group = ""
    rule = ""
    for line in words.splitlines():
        if match := re.search(r"Group job (\w+)", line):
            group = match[1]
        elif match := re.match(r"( *)(?:local)?rule (\w+):", line):
            group, rule = group if match[1] else "", match[2]
        elif match := re.match(r" *resources: (.*)", line):
            yield group, rule, dict(re.findall(r"(\w+)=([^,]*)", match[1]))


def test_through_slurm_all_that_is_measured_on_the_gpu_is_one_group_that_alone_asks_for_a_gpu(planned):
    made = planned("slurm", "slurm")
    assert {group for group, _, _ in made if group} == GROUPS
    assert {rule for group, rule, _ in made if group == "counters"} == {"count_variant", "count_network"}
    on_gpu = {rule for group, rule, _ in made if group == "gpu"}
    assert {"probe_machine", "check_variant", "measure_variant", "run_program", "trace_program"} <= on_gpu
    for group, rule, resources in made:
        assert (resources.get("gres") == "gpu:1") == (group in ("gpu", "counters")), rule
        assert "gpu" not in resources, rule
        assert ("exclusive" in resources.get("slurm_extra", "")) == (group == "cpu"), rule


def test_through_slurm_an_allocation_has_all_the_gpus_that_share_its_jobs(planned):
    asked = {(group, resources.get("gres", "")) for group, _, resources in planned("slurm", "slurm", "gpus=3") if group}
    assert {("gpu", "gpu:3"), ("counters", "gpu:3"), ("cpu", "")} <= asked
    assert {gres for _, gres in asked} == {"", "gpu:3"}


def test_on_kubernetes_one_pod_with_a_gpu_makes_the_archive_in_a_clone_on_a_volume():
    """The same command is planned here; Kubernetes takes no request for a GPU without a limit."""
    pod = yaml.safe_load((PROJECT / "profiles" / "kubernetes" / "job.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == container["workingDir"]
    assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]
    snakemake, *options = [*container["command"], *container["args"]]
    assert snakemake.endswith("/.venv/bin/snakemake")
    command = [
        sys.executable,
        "-m",
        "snakemake",
        *options,
        "target={arch: sm_90, memory_gib: 80.5}",
        "--nolock",
        "--dry-run",
        "--forceall",
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Timing direct on fa18\b.*Archiving the run", done.stdout + done.stderr, re.DOTALL)
