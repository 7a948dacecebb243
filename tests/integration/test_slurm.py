"""A study through profiles/slurm on a real Slurm of one node: built, checked, timed and rendered by its jobs.

Where Slurm's programs are not installed, or this user may not start them, these tests are skipped.
"""

import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from warpbook.runs import catalog, tables

PREFIX = "warpbook-slurm-"  # of the folder of a test's daemons; the process that tests follows
SYSTEM = Path("/etc/slurm")  # where a job's own `srun` looks, whatever the environment says
CONF = """\
ClusterName=test
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MinJobAge=3600
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=localhost CPUs={cores} RealMemory=2000 Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""
GRES = "Name=gpu File=/dev/null\n"  # Slurm hands out a GPU that the machine does not have

SERIES = {"warmup": 0, "min_samples": 2, "max_samples": 3, "max_time_s": 0.01, "min_samples_timeout_s": 1}
QUICK = {
    "measuring": {
        "target_rel_ci": 0.5,
        "tolerated_load": 1000.0,  # other tests run beside
        "equivalence_margin": 0.01,
        "gpu": SERIES,
        "cpu": SERIES,
        "programs": {"runs": 1, "min_samples_timeout_s": 1},
        "timeout_s": 60,
    },
    "studies": {
        "tiny": {
            "title": "Tiny",
            "network": "fa17",
            "sizes": [3],
            "variants": ["direct", "im2col_blas"],
            "sections": ["milestone_1"],
        }
    },
}
THROUGH_SLURM = [
    "--profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5",
    "--default-resources", "mem_mb=100", "runtime=5",
]  # fmt: skip
# Snakemake that asks for its jobs every second: left to itself it asks ever less often, by ten seconds each time, which
# is right for a cluster's controller and here would be most of the tests' time.
ASKING_OFTEN = """\
import runpy
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""


class Slurm:
    """Daemons of a cluster that is this machine, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        words = CONF.format(user=getpass.getuser(), folder=folder, cores=os.cpu_count())
        (folder / "slurm.conf").write_text(words)
        (folder / "gres.conf").write_text(GRES)

    def start(self) -> None:
        """Start them; skip the test where this machine lets none of them work."""
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munge.seed"}
        subprocess.run(["munged", *(f"--{it}={self.folder / name}" for it, name in files.items())], check=True)
        for daemon in ("slurmctld", "slurmd"):
            if (done := subprocess.run([daemon], capture_output=True, text=True)).returncode:
                pytest.skip(f"{daemon} does not start here: {done.stderr}")
        until = time.monotonic() + 20
        while (state := self.said("sinfo", "--noheader", "--format=%T")) != "idle":
            if time.monotonic() > until:
                pytest.skip(f"Slurm's node is {state!r}: {(self.folder / 'slurmctld.log').read_text()}")
            time.sleep(0.1)

    def said(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def jobs(self, state: str = "all") -> dict[str, str]:
        """What each allocation is for, by its number."""
        listed = self.said("squeue", "--noheader", f"--states={state}", "--format=%i %k").splitlines()
        return dict(line.split(maxsplit=1) for line in listed)


def stop(folder: Path) -> None:
    """End the daemons of a folder."""
    for daemon in ("slurmd", "slurmctld", "munged"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / f"{daemon}.pid").read_text()), signal.SIGKILL)


def forget_a_killed_test_s(system: Path) -> None:
    """Take away the daemons and the configuration that a test left, killed before it could: the tests here would take
    this machine for a part of a cluster, and each Snakemake would wait for daemons that have ended."""
    folder = (system / "slurm.conf").resolve().parent
    tests = re.match(rf"{PREFIX}(\d+)-", folder.name)
    if tests and not Path(f"/proc/{tests[1]}").exists():
        stop(folder)
        for link in filter(Path.is_symlink, system.iterdir()):
            link.unlink()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def slurm():
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="snakemake-executor-plugin-slurm is not installed")
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("to start Slurm's daemons takes root")
    SYSTEM.mkdir(exist_ok=True)
    forget_a_killed_test_s(SYSTEM)
    if (SYSTEM / "slurm.conf").exists():
        pytest.skip(f"{SYSTEM}/slurm.conf: this machine is part of a cluster")
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    folder.chmod(0o755)  # munge wants a socket that everybody reaches; pytest's folders are its user's alone
    made = Slurm(folder)
    links = [SYSTEM / name for name in ("slurm.conf", "gres.conf")]
    try:
        for link in links:
            link.symlink_to(made.folder / link.name)
        made.start()
        yield made
    finally:
        stop(folder)
        for link in links:
            link.unlink(missing_ok=True)
        shutil.rmtree(folder)


@pytest.fixture
def fresh(fresh):
    for other in ("loop_nest.py", "shared_input.cu"):
        (fresh.folder / "kernels" / "conv" / other).unlink()
    fresh.program = "-c", ASKING_OFTEN
    return fresh


def run_tables(workspace) -> dict[str, str]:
    """What the tables of a workspace's run say, without times."""
    run = catalog.open_run(workspace.folder / "results" / "run")
    assert run.problem == ""
    place = ["variant", "network", "layer", "device", "size", "status"]
    checks, samples = run.table(tables.CORRECTNESS), run.table(tables.SAMPLES)
    return {
        "builds": run.table(tables.BUILDS).to_csv(),
        "correctness": checks[[*place, "test", "ok", "mismatched_labels"]].to_csv(),
        "samples": samples[place].drop_duplicates().to_csv(index=False),
        "programs": run.table(tables.PROGRAMS)[["variant", "size", "accuracy", "status"]].to_csv(),
    }


def test_only_a_killed_test_s_daemons_and_configuration_are_taken_away(tmp_path):
    killed, running = f"{PREFIX}{2**22 + 1}-", f"{PREFIX}{os.getpid()}-"
    for prefix, left in [(killed, False), (running, True), ("cluster-", True)]:
        folder, system = tmp_path / f"{prefix}x", tmp_path / f"{prefix}etc"
        for each in (folder, system):
            each.mkdir()
        for name in ("slurm.conf", "gres.conf"):
            (folder / name).touch()
            (system / name).symlink_to(folder / name)
        with subprocess.Popen(["sleep", "60"]) as daemon:
            (folder / "slurmctld.pid").write_text(f"{daemon.pid}\n")
            forget_a_killed_test_s(system)
            if left:
                assert daemon.poll() is None
                daemon.kill()
            assert daemon.wait(timeout=10) == -signal.SIGKILL
        assert [path.exists() for path in (folder, *(system / name for name in ("slurm.conf", "gres.conf")))] == [
            left
        ] * 3
        assert any(system.iterdir()) == left


def test_a_study_through_slurm_cancelled_in_its_midst_and_resumed_is_that_of_a_local_run(slurm, fresh):
    fresh.configure(**QUICK)
    local = fresh.copy(fresh.folder.parent / "local")
    process = fresh.start("report", *THROUGH_SLURM, "--retries", "0")
    until = time.monotonic() + 400
    while not (fresh.folder / "results" / "parts" / "machine.json").exists():  # the first of what is timed
        assert time.monotonic() < until and process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    (timing,) = (job for job, what in slurm.jobs("running").items() if "rule_cpu" in what)
    slurm.said("scancel", timing)
    words, _ = process.communicate(timeout=400)
    assert process.returncode != 0, words
    assert not (fresh.folder / "results" / "run").exists()
    builds = {path: path.stat().st_mtime_ns for path in (fresh.folder / "results" / "builds").rglob("*.csv")}

    fresh.snakemake("report", *THROUGH_SLURM)
    assert builds == {path: path.stat().st_mtime_ns for path in builds}, "what had been made was made again"
    assert (fresh.folder / "reports" / "out" / "tiny.pdf").stat().st_size > 50_000
    groups = re.findall(r"rule_([a-z]+)_", " ".join(slurm.jobs().values()))
    assert sorted(groups) == ["cpu", "cpu", "emulator", "prepare", "report"]

    shutil.copytree(fresh.folder / "results" / "data", local.folder / "results" / "data")
    local.snakemake("measure")
    assert run_tables(fresh) == run_tables(local)


def test_a_node_without_what_the_target_promises_fails_with_a_sentence(slurm, fresh):
    fresh.configure(**QUICK, gpu="auto", target={"arch": "sm_90", "name": "NVIDIA H200"}, profilers=[])
    assert fresh.snakemake("results/parts/machine.json", *THROUGH_SLURM, "--retries", "0", check=False).returncode
    words = (fresh.folder / "logs" / "probe_machine.log").read_text()
    assert "error: target promises NVIDIA H200, and " in words
    assert "has no GPU to use: no CUDA driver" in words
    (number,) = (job for job, what in slurm.jobs().items() if "rule_gpu" in what)
    assert "gpu:1" in slurm.said("scontrol", "show", "job", number)
