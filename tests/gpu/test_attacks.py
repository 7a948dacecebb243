"""The harness attacked on a GPU: each attack is caught, and by which check is said."""

import pytest

from warpbook.harness.attacks import attack_registry
from warpbook.harness.attacks.attack_registry import ATTACKS


@pytest.mark.gpu
def test_on_a_gpu_the_harness_catches_each_attack_by_the_check_that_is_to_see_it(tmp_path):
    found = {}
    for number, (name, attack) in enumerate(ATTACKS.items()):
        if attack.gpu is None:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        reason = (attack_registry.try_attack(attack, "gpu", folder) or {"reason": "it passed"})["reason"]
        its, wanted = map(attack_registry.check_behind, (reason, attack.gpu))
        if attack.gpu not in reason or not its == wanted != "":
            found[name] = reason
    assert found == {}
