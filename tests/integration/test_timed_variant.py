"""A variant timed in a process of its own, by a judge that believes it nothing."""

import itertools
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cupy.cuda import runtime

import measure_pairs
import measure_variant
from policies import MEASURING, QUICK
from warpbook.common.supervision import VariantFailure, processor_time, thread_states
from warpbook.harness import timed_variant, timing, variant_process
from warpbook.harness.bench import CPU_CHUNK, CpuBench
from warpbook.harness.timed_variant import TimedVariant
from warpbook.harness.variant_process import VariantProcess
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.runs import tables

LAYER = networks.ConvLayer("odd", 2, 9, 11, 3, 4)
RIGHT = "y[...] = convolve(x, w)"


def measured(variant, images=3, bench=None):
    """The samples of a variant, timed outside a sandbox."""
    bench = bench or CpuBench()
    timed = TimedVariant(bench, variant, sandboxed=False)
    try:
        return timing.measure_case(bench, [timed], LAYER.at(images), QUICK, MEASURING)
    finally:
        timed.close()


def refusal(variant, images=3):
    with pytest.raises(VariantFailure) as raised:
        measured(variant, images)
    return raised.value.status, str(raised.value)


def test_a_layer_s_samples_come_with_their_pairs(cpu_variant):
    rows = measured(cpu_variant(RIGHT))
    assert {(row["variant"], row["case"], row["size"], row["state"], row["kind"]) for row in rows} == {
        ("mine", "odd", 3, "hot", "op")
    }
    assert all(row["time_ms"] > 0 for row in rows)
    assert [row["sample"] for row in rows] == list(range(len(rows)))


def test_all_images_of_a_large_dataset_go_through_in_chunks(cpu_variant, tmp_path):
    log = tmp_path / "calls.txt"
    body = f"{RIGHT}\nopen({str(log)!r}, 'a').write(f'{{len(x)}} ')"
    measured(cpu_variant(body), 2 * CPU_CHUNK + 7)
    # The first of each sample comes twice: the one before wakes the threads.
    assert f" 7 {CPU_CHUNK} {CPU_CHUNK} {CPU_CHUNK} 7 " in log.read_text()


def test_every_timed_call_finds_inputs_that_nobody_has_seen(cpu_variant, tmp_path):
    log = tmp_path / "seen.txt"
    body = f"{RIGHT}\nopen({str(log)!r}, 'a').write(f'{{zlib.crc32(x)}}\\n')"
    rows = measured(cpu_variant(body, before="import zlib"))
    seen = log.read_text().splitlines()
    assert len(set(seen)) > 2 * len(rows) / 3  # a call that wakes the threads is on the inputs of the sample before


def test_what_is_remembered_makes_no_call_faster(cpu_variant):
    body = (
        "key = x.tobytes() + w.tobytes()\n"
        "if key not in kept:\n    time.sleep(0.01)\n    kept[key] = convolve(x, w)\ny[...] = kept[key]"
    )
    rows = measured(cpu_variant(body, before="import time\nkept = {}"))
    assert min(row["time_ms"] for row in rows) > 10


def test_only_a_library_may_pack_weights_once(cpu_variant):
    body = f"key = w.tobytes()\nif key not in kept: time.sleep(0.02)\nkept.add(key)\n{RIGHT}"
    for peer in (True, False):
        variant = cpu_variant(body, before="import time\nkept = set()", header="peer: true\n" if peer else "")
        assert (np.median([row["time_ms"] for row in measured(variant)]) < 20) == peer


def test_an_array_that_a_call_returns_is_its_result_and_handing_it_over_is_not_its_time(cpu_variant):
    rows = measured(cpu_variant("return convolve(x, w).astype(np.float32)"))
    assert {row["status"] for row in rows} == {"ok"}


CHEATS = {
    "does less once it is called often": (
        f"calls[0] += 1\nif calls[0] < 4: {RIGHT}", "calls = [0]", "wrong_result", "when timed: mine is wrong"
    ),
    "is wrong": ("y[...] = 1", "", "wrong_result", "when timed: mine is wrong"),
    "replays once it is called often": (
        "calls[0] += 1\nif calls[0] < 4: kept.append(convolve(x, w))\ny[...] = kept[-1]", "kept, calls = [], [0]",
        "wrong_result", "when timed: mine is wrong",
    ),
    "writes outside its output when timed": (
        f"{RIGHT}\nnp.ctypeslib.as_array((ctypes.c_float * 1).from_address(y.ctypes.data - 4))[0] = 1", "import ctypes",
        "wrong_result", r"writes outside its output y when timed: 1 of the words",
    ),
    "returns another shape": ("return convolve(x, w)[:, :1]", "", "wrong_result", "returns shape"),
    "answers before it is asked": (
        f"if not told:\n    told.append(1)\n    [os.write(fd, b'{{\"time_ms\": 1e-3}}') for fd in map(int, os.listdir('/proc/self/fd')) if is_socket(fd)]\n{RIGHT}",
        "import os, stat\ntold = []\ndef is_socket(fd):\n    try:\n        return stat.S_ISSOCK(os.fstat(fd).st_mode)\n"
        "    except OSError:\n        return False",
        "launch_failed", "answers what no variant's would",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_variant_gets_no_figure_that(cheat, cpu_variant):
    body, before, status, words = CHEATS[cheat]
    found, reason = refusal(cpu_variant(body, before=before))
    assert found == status and re.search(words, reason), reason


FALSE_CLOCK = """
import sys, time
worker = sys.modules["__main__"]
genuine = time.perf_counter
worker.perf_counter = lambda: genuine() / {}
"""


@pytest.mark.parametrize(
    ("images", "work_s", "share"), [(12, 0, 1000), (300, 0.004, 50), (100, 0.15, 50)]
)  # the last claims a long call
def test_a_process_that_claims_less_than_its_calls_take_is_refused(images, work_s, share, cpu_variant):
    body = f"until = time.monotonic() + {work_s} * (len(x) > 50)\nwhile time.monotonic() < until: pass\n{RIGHT}"
    status, reason = refusal(cpu_variant(body, before=FALSE_CLOCK.format(share)), images)
    assert status == "refused"
    claimed, seen = map(float, re.findall(r"([\d.e-]+) ms", reason)[:2])
    assert claimed < seen / 10


@pytest.mark.parametrize(("others", "prompt", "refused"), [(0.4, False, False), (0.0, True, False), (0.0, False, True)])
def test_an_answer_that_comes_late_is_no_false_claim_where_others_kept_the_machine_busy(
    others, prompt, refused, cpu_variant, monkeypatch
):
    """Each on a busy machine; on another one in four is `prompt`."""
    ask, asked = VariantProcess.ask, itertools.count()

    def answer_late(process, *handle, **request):
        answer = ask(process, *handle, **request)
        if request["do"] == "take" and (next(asked) % 4 or not prompt):
            time.sleep(0.1)
        return answer

    monkeypatch.setattr(VariantProcess, "ask", answer_late)
    meter = SimpleNamespace(share_of_others=lambda _: others)
    monkeypatch.setattr(timed_variant, "LoadMeter", lambda: meter)
    slow = cpu_variant(f"time.sleep(0.03)\n{RIGHT}", before="import time")  # far longer than a process waits by chance
    if not refused:
        assert measured(slow)
        return
    with pytest.raises(VariantFailure, match=r"claims \d.* ms a call .op.; by the judge's clock it answers after"):
        measured(slow)


def test_how_long_the_judge_looks_at_a_process_before_it_lets_it_go_on_is_no_time_of_its_calls(
    cpu_variant, monkeypatch
):
    look = variant_process.exact_processor_s

    def look_long(pid):
        time.sleep(0.01)
        return look(pid)

    monkeypatch.setattr(variant_process, "exact_processor_s", look_long)
    assert measured(cpu_variant(f"time.sleep(0.004)\n{RIGHT}", before="import time"))


@pytest.mark.parametrize("looks_false", [1, 2])
def test_a_claim_that_looks_false_once_is_timed_again_and_twice_is_refused(looks_false, cpu_variant, monkeypatch):
    audit, audits = TimedVariant._audit_samples, itertools.count(1)

    def slowed(timed, handing_ms):
        if next(audits) <= looks_false:
            raise timed_variant.FalseClaim("it claims too little")
        audit(timed, handing_ms)

    monkeypatch.setattr(TimedVariant, "_audit_samples", slowed)
    if looks_false == 1:
        assert measured(cpu_variant(RIGHT)) and next(audits) == 3
    else:
        assert refusal(cpu_variant(RIGHT)) == ("refused", "it claims too little")


CLAIM_FOR_SOME = """
import sys, time
take = sys.modules["__main__"].Worker.take
def claim(worker, place, **request):
    answer = take(worker, place, **request)
    return {{**answer, "time_ms": answer["time_ms"] / (100 if answer["time_ms"] > {} else 1)}}
sys.modules["__main__"].Worker.take = claim
"""
PARTLY_FALSE = {
    "of a case's larger part alone": (
        f"time.sleep(0.3 if len(x) == {CPU_CHUNK} else 0.004)\n{RIGHT}", CLAIM_FOR_SOME.format(100), CPU_CHUNK + 1
    ),
    "of single calls, and works on those of a batch at the same time": (
        "frame = sys._getframe()\nwhile frame and frame.f_code.co_name != 'run': frame = frame.f_back\n"
        f"frame or time.sleep(0.02)\n{RIGHT}", CLAIM_FOR_SOME.format(0), 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PARTLY_FALSE)
def test_a_process_is_refused_that_claims_too_little(what, cpu_variant):
    body, before, images = PARTLY_FALSE[what]
    status, reason = refusal(cpu_variant(body, before=before), images)
    assert status == "refused" and "by the judge's clock" in reason, reason


def test_what_a_variant_replaces_in_its_process_is_no_matter_of_the_judge(cpu_variant):
    before = (
        "import gc\nnp.where = lambda *_: np.zeros(1)\nnp.abs = np.isfinite = lambda values: values * 0\n"
        "from warpbook.harness import checking\nchecking.comparison_columns = lambda *_: {'ok': True}\n"
        "checking.reject_replaced_functions = lambda *_: None"
    )
    status, reason = refusal(cpu_variant("y[...] = 0", before=before))
    assert (status, reason.partition(" is wrong")[0]) == ("wrong_result", "when timed: mine")


def test_each_stands_still_unless_it_is_asked(cpu_variant, tmp_path):
    """Whatever threads it has: they would slow down what it is compared with, and work before and after the time."""
    spinning = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    bench, both = CpuBench(), []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        made = cpu_variant(RIGHT, before=spinning)
        (tmp_path / name / "mine.py").write_bytes(made.files[0].read_bytes())
        both.append(TimedVariant(bench, variants.read("mine", tmp_path / name), sandboxed=False))
    both[0].rivals, both[1].rivals = both[1:], both[:1]
    takes = [one.arrange(LAYER.at(3))["hot", "op"] for one in both]
    try:
        for turn in (0, 1, 1, 0, 1):
            assert takes[turn]() > 0
            spent_s = [one.processor_s() for one in both]
            time.sleep(0.1)
            assert np.subtract([one.processor_s() for one in both], spent_s).max() < 0.03  # Linux counts ticks of 10 ms
            assert {processor_time(pid)[1] for one in both for pid in one.pids()} == {"T"}
    finally:
        for one in both:
            one.close()


IN_THE_KERNEL = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>

void* start(void* _) {
    struct timespec some = {1, 0};
    if (!vfork()) nanosleep(&some, 0), _exit(0);  // its thread waits in the kernel for that
    return 0;
}

int main() {
    pthread_t thread;
    pthread_create(&thread, 0, start, 0);
    pause();
}
"""


def test_a_process_stands_when_its_last_thread_has_left_the_kernel(cpu_variant, tmp_path, monkeypatch):
    """What a driver does there after the main thread stands is no work of the variant's."""
    (tmp_path / "held.c").write_text(IN_THE_KERNEL)
    subprocess.run(["gcc", "-w", "-pthread", "-o", tmp_path / "held", tmp_path / "held.c"], check=True)
    held = subprocess.Popen([tmp_path / "held"])
    one = VariantProcess(cpu_variant(RIGHT), sandboxed=False)
    monkeypatch.setattr(one, "pids", lambda: {held.pid})
    monkeypatch.setattr(variant_process, "children", lambda _: set())
    until = time.monotonic() + 10
    try:
        while thread_states(held.pid) != {"S", "D"}:
            assert held.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        one.pause()
        assert thread_states(held.pid) == {"T"}
    finally:
        held.kill()
        held.wait()


WAKING = """
import ctypes, signal
signal.signal(signal.SIGCONT, lambda *_: None)
timer, event = ctypes.c_void_p(), (ctypes.c_long * 8)(0, signal.SIGCONT)
every = (ctypes.c_long * 4)(0, 300_000_000, 0, 300_000_000)
refused = ctypes.CDLL(None).timer_create(1, event, ctypes.byref(timer))
ctypes.CDLL(None).timer_settime(timer, 0, every, None)
"""


def test_a_variant_that_is_timed_has_no_timer_to_wake_it(cpu_variant):
    one = TimedVariant(
        CpuBench(), cpu_variant(RIGHT, before=f"{WAKING}assert not refused, 'no timer'"), sandboxed=False
    )
    with pytest.raises(VariantFailure, match="no timer"):
        one.arrange(LAYER.at(3))
    one.close()


def test_one_that_wakes_itself_while_it_is_to_stand_still_is_refused(cpu_variant, monkeypatch):
    """Linux sends a timer's signal, SIGCONT too, to a process that stands. Until it is refused, what it worked counts."""
    monkeypatch.setattr(variant_process, "lower_limit", lambda *_: None)
    spinning = (
        "import sys, threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    )
    variant = cpu_variant(RIGHT, before=spinning + WAKING)

    judged_ms = []

    def refused_for() -> str:
        one = TimedVariant(CpuBench(), variant, sandboxed=False)
        try:
            take = one.arrange(LAYER.at(3))["hot", "op"]
            for _ in range(5):
                time.sleep(0.35)
                began = time.perf_counter()
                take()
                judged_ms.append((one._asked_ms, (time.perf_counter() - began) * 1e3))
        except VariantFailure as failure:
            return str(failure)
        finally:
            one.close()
        return ""

    # Woken before it stands, it is refused for that, which is by chance; so is how soon it is refused.
    refusals = []
    for _ in range(10):
        refusals.append(refused_for())
        refused = any("works while it is to stand still" in refusal for refusal in refusals)
        counted = any(judged > passed for judged, passed in judged_ms)
        if refused and counted:
            break
    assert refused, refusals
    assert counted, judged_ms


def test_a_fault_of_the_machine_in_the_harness_s_own_calls_is_a_row(cpu_variant, monkeypatch):
    bench = CpuBench()

    def lost(*_):
        raise runtime.CUDARuntimeError(214)

    monkeypatch.setattr(bench, "compare", lost)
    monkeypatch.setattr(measure_variant, "CpuBench", lambda *_: bench)
    ((_, (row,)),) = measure_variant.measure("cpu", cpu_variant(RIGHT), None, [LAYER.at(2)], MEASURING, {}, False)
    assert (row["status"], row["time_ms"]) == ("launch_failed", None)
    assert "uncorrectable ECC error" in row["reason"]


def test_a_crash_costs_a_case_and_the_next_one_has_a_new_process(cpu_variant):
    variant = cpu_variant(f"if len(x) == 5: ctypes.string_at(0)\n{RIGHT}", before="import ctypes")
    places = [LAYER.at(images) for images in (3, 5, 4)]
    told = dict(measure_variant.measure("cpu", variant, None, places, MEASURING, {}, False))
    assert [{row["status"] for row in told[place]} for place in places] == [{"ok"}, {"launch_failed"}, {"ok"}]
    assert "SIGSEGV" in told[places[1]][0]["reason"]


def test_a_variant_is_timed_in_turn_with_its_own_copy(cpu_variant):
    variant = cpu_variant(RIGHT)
    copy = replace(variant, name=f"{variant.name}:aa")
    told = dict(measure_variant.measure("cpu", variant, copy, [LAYER.at(3)], MEASURING, {}, False))
    (rows,) = told.values()
    assert {(row["variant"], row["status"]) for row in rows} == {("mine", "ok"), ("mine:aa", "ok")}


def test_a_kernel_with_five_percent_more_instructions_is_found_slower_than_one_without(tmp_path):
    folder = tmp_path / "additions"
    folder.mkdir()
    *_, slower = [pair for pair in measure_pairs.pairs("cpu", folder) if pair[3] == "known"]
    # So many pairs that what other programs do during some of them moves no median.
    many = QUICK.model_copy(
        update={"min_samples": 200, "max_samples": 200, "max_time_s": 5, "min_samples_timeout_s": 5}
    )
    patient = MEASURING.model_copy(update={"cpu": many})
    (row,) = next(measure_pairs.compare("cpu", slower, 1, patient, {}, sandboxed=False))
    assert row["status"] == "ok", row["reason"]
    assert row["ci_high"] < 1 and row["speedup"] == pytest.approx(1 / 1.05, abs=0.02), row


def test_comparisons_that_fail_are_rows_of_their_table(tmp_path, monkeypatch):
    monkeypatch.setattr(measure_pairs, "SLOWER", (0,))
    monkeypatch.setitem(measure_pairs.COPIES, "cpu", ())
    monkeypatch.setattr(measure_pairs, "ADDITIONS", measure_pairs.ADDITIONS.replace("+= 1.0f", "+= nothing"))
    machine, out = tmp_path / "machine.json", tmp_path / "cpu.csv"
    machine.write_text(json.dumps({"gpu": None, "cpu": {}}))
    command = f"measure_pairs.py --device cpu --processes 1 --tests 2 --sandbox none --machine {machine} --out {out}"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--measuring", MEASURING.model_dump_json()])
    measure_pairs.main()
    told = [(row["number"], row["status"], row["n"], row["speedup"]) for row in tables.PAIRS.rows(out)]
    assert told == [(0, "compile_failed", 0, None), (1, "compile_failed", 0, None)]


def test_a_kernel_of_a_problem_that_counts_no_operations_is_timed_beside_its_baseline_too(tmp_path, monkeypatch):
    counted = "flops:   n * rounds\n"
    assert counted in measure_pairs.PROBLEM
    monkeypatch.setattr(measure_pairs, "PROBLEM", measure_pairs.PROBLEM.replace(counted, ""))
    folder = tmp_path / "additions"
    folder.mkdir()
    _, slower, *_ = measure_pairs.pairs("cpu", folder)
    assert slower[-1].flops == 0
    (row,) = next(measure_pairs.compare("cpu", slower, 1, MEASURING, {}, sandboxed=False))
    assert (row["status"], row["reason"]) == ("ok", "") and row["n"] > 1


def test_a_far_slower_baseline_is_timed_in_its_own_job_alone_once_its_calls_are_long(
    cpu_variant, tmp_path, monkeypatch
):
    fast = cpu_variant(RIGHT, before="import time")
    slower = f"{RIGHT}; time.sleep(0.01 * len(x))"
    (tmp_path / "slow.py").write_text((tmp_path / "mine.py").read_text().replace(RIGHT, slower))
    monkeypatch.setattr(measure_variant, "SHORT_S", 0.2)
    places = [LAYER.at(2), LAYER.at(5)]
    told = dict(measure_variant.measure("cpu", fast, variants.read("slow", tmp_path), places, MEASURING, {}, False))
    assert [{row["variant"] for row in rows} for rows in told.values()] == [{"mine", "slow"}, {"mine"}]
