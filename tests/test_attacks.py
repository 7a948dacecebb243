"""The harness attacked, on the CPU by emulation and on a GPU where there is one: each attack is caught, and by which
check is said."""

import shutil

import pytest

from warpbook import attacks, checking, emulator, variants
from warpbook.attacks import ATTACKS

needs_compiler = pytest.mark.skipif(emulator.compiler() is None, reason="there is no C++ compiler here to emulate with")


@needs_compiler
@pytest.mark.parametrize("attack", [name for name, attack in ATTACKS.items() if attack.emulated is not None])
def test_the_emulator_catches_a_kernel_that(attack, tmp_path):
    failure = attacks.failure_of(ATTACKS[attack], "emulator", tmp_path)
    assert failure, "it passed"
    assert ATTACKS[attack].emulated in failure["reason"]


@pytest.mark.gpu
@pytest.mark.parametrize("attack", [name for name, attack in ATTACKS.items() if attack.gpu is not None])
def test_on_a_gpu_the_harness_catches_a_kernel_that(attack, tmp_path):
    failure = attacks.failure_of(ATTACKS[attack], "gpu", tmp_path)
    assert failure, "it passed"
    assert ATTACKS[attack].gpu in failure["reason"]


def test_ten_attacks_or_more_are_tried_on_either():
    assert sum(attack.emulated is not None for attack in ATTACKS.values()) >= 10
    assert sum(attack.gpu is not None for attack in ATTACKS.values()) >= 10


PLAIN = [name for name, variant in variants.discover().items() if not emulator.beyond(variant)]


@needs_compiler
@pytest.mark.parametrize("name", PLAIN)
def test_a_variant_s_own_source_is_right_under_the_sanitizers_whatever_the_order_of_threads(name, tmp_path):
    for file in variants.read(name).files:
        shutil.copy(file, tmp_path)
    rows = attacks.checked(tmp_path, name, "emulator")
    failed = [row["reason"] for row in rows if not row["ok"] and row["status"] != "unsupported"]
    assert not failed
    assert sum(row["ok"] for row in rows) >= 2 * (len(checking.RAGGED_LAYERS) - 1)


def test_a_variant_beyond_the_emulator_says_what_it_uses(tmp_path):
    text = (variants.FOLDER / "direct.cu").read_text()
    (tmp_path / "mine.cu").write_text(text.replace("limits:", "beyond_emulator: inline PTX\nlimits:"))
    (row,) = attacks.checked(tmp_path, "mine", "emulator")
    assert row["status"] == "unsupported"
    assert "beyond the emulator: inline PTX" in row["reason"]
