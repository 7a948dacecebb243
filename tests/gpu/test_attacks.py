"""The harness attacked on a GPU: each attack is caught, and by which check is said."""

import pytest

from warpbook.harness.attacks import catalog
from warpbook.harness.attacks.catalog import ATTACKS


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.gpu is not None])
def test_on_a_gpu_the_harness_catches_a_kernel_that(name, tmp_path):
    failure = catalog.try_attack(ATTACKS[name], "gpu", tmp_path)
    assert failure, "it passed"
    assert ATTACKS[name].gpu in failure["reason"]
    assert catalog.check_behind(failure["reason"]) == catalog.check_behind(ATTACKS[name].gpu) != ""
