"""The harness attacked, by emulation and by CPU variants: each attack is caught, and by which check is said."""

from dataclasses import replace

import pytest

import check_variant
from emulated import checked
from warpbook.common.files import PROJECT
from warpbook.common.supervision import run_supervised
from warpbook.harness.attacks import attack_registry
from warpbook.harness.attacks.attack_registry import ATTACKS, Attack
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.problems import networks
from warpbook.runs import tables


def shown(device):
    return [name for name, attack in ATTACKS.items() if attack.expected_words(device) is not None]


def rows_of(attack, device, folder):
    """The rows of an attack's checks, up to the process that fails them."""
    variant = attack_registry.forge(attack, folder, device)
    for _ in range(attack.processes):
        if device == "emulator":
            rows = checked(folder, "mine", wrong=True)
        else:
            with IsolatedBench(variant, sandboxed=False) as bench:
                rows = []
                for its in check_variant.check(bench, "cpu", variant, networks.find("fa17"), [1], None):
                    rows += its
                    if tables.first_failure(its):
                        break
        if tables.first_failure(rows):
            break
    return rows


def rows_of_a_process(attack, folder):
    """The same on a CPU, in a process that ends with all that the attack leaves at work."""
    (rows,) = run_supervised(lambda: iter([rows_of(attack, "cpu", folder)]), attack_registry.TIMEOUT_S)
    return rows


def missed(device, tmp_path):
    """What happened to each attack that shows itself in a check, and was not caught by the check that is to see it."""
    found = {}
    for name in shown(device):
        if ATTACKS[name].timed:
            continue
        folder = tmp_path / name
        folder.mkdir()
        failure = tables.first_failure(rows_of(ATTACKS[name], device, folder)) or {"reason": "it passed"}
        words, reason = ATTACKS[name].expected_words(device), failure["reason"]
        if (
            words not in reason
            or attack_registry.check_behind(reason) != attack_registry.check_behind(words)
            or not attack_registry.check_behind(words)
        ):
            found[name] = reason
    return found


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
def test_each_kernel_that_cheats_is_caught_in_the_emulator(tmp_path):
    assert missed("emulator", tmp_path) == {}


def test_each_cpu_variant_that_cheats_is_caught(tmp_path):
    assert missed("cpu", tmp_path) == {}


REPLAY = "replays an answer once it is called often"


def test_a_cpu_variant_that_cheats_when_it_is_timed_is_caught(tmp_path):
    found = {}
    for number, name in enumerate(name for name in shown("cpu") if ATTACKS[name].timed and name != REPLAY):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = rows_of_a_process(ATTACKS[name], folder)
        tables.CORRECTNESS.write([], folder / "mine.cpu.csv")
        failure = tables.first_failure(rows) or attack_registry.try_timing(ATTACKS[name], "cpu", folder)
        failure = failure or {"reason": "it passed"}
        if ATTACKS[name].cpu not in failure["reason"]:
            found[name] = failure["reason"]
    assert found == {}


def test_a_replay_is_caught_though_its_calls_are_so_slow_that_a_usual_series_would_lose_patience(tmp_path):
    images = attack_registry.TIMED_IMAGES["cpu"]
    slow = f"import time; time.sleep(0.2 if len(x) == {images} else 0)"
    attack = ATTACKS[REPLAY]
    attack = replace(attack, launcher=attack.launcher.replace("    launch(", f"    {slow}; launch("))
    failure = attack_registry.try_attack(attack, "cpu", tmp_path)
    assert failure and attack.cpu in failure["reason"]


def test_a_sound_variant_passes_what_the_attacks_fail(tmp_path):
    sound = Attack(None, None, on_cpu="launch(x, w, y)", timed=True)
    assert attack_registry.try_attack(sound, "cpu", tmp_path) is None


def test_the_harness_is_attacked_in_many_ways_on_every_device():
    for device, at_least in (("gpu", 24), ("emulator", 20), ("cpu", 20)):
        assert len(shown(device)) >= at_least, device


def test_the_documented_table_of_attacks_is_the_catalog():
    page = PROJECT / "docs" / "explanation" / "tested-attacks.md"
    assert attack_registry.document() in page.read_text(), "make attacks writes it anew"


def test_a_run_from_before_the_check_was_named_is_read(tmp_path):
    (tmp_path / "attacks.csv").write_text(
        "attack,device,caught,status,reason\nwrites nothing,gpu,true,wrong_result,no\n"
    )
    (row,) = tables.ATTACKS.rows(tmp_path / "attacks.csv")
    assert (row["caught"], row["caught_by"]) == (True, "")
