"""The harness attacked on a GPU: each attack is caught, and by which check is said."""

import pytest

from warpbook.harness.attacks import attack_registry
from warpbook.harness.attacks.attack_registry import ATTACKS


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.gpu is not None])
def test_on_a_gpu_the_harness_catches_a_kernel_that(name, tmp_path):
    failure = attack_registry.try_attack(ATTACKS[name], "gpu", tmp_path)
    assert failure, "it passed"
    assert ATTACKS[name].gpu in failure["reason"]
    assert attack_registry.check_behind(failure["reason"]) == attack_registry.check_behind(ATTACKS[name].gpu) != ""
