"""What a command measures for a GPU of an archived run."""

import pytest
import yaml

from small_run import shipped
from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.workflow import plan

KNOWN = shipped()


def load(**changes) -> settings.Config:
    return settings.load(yaml.safe_load(settings.FILE.read_text()) | changes, list(KNOWN))


def test_a_target_may_be_the_gpu_of_an_archived_run():
    planned = plan.build(load(target="NVIDIA H200"))
    assert planned.identity("gpu") == "NVIDIA H200, sm_90"
    assert planned.remote_target.memory_gib > 100
    assert "cupti" in planned.profilers
    with pytest.raises(UserError, match="no archived run is of a GPU called 'NVIDIA H20': did you mean 'NVIDIA H200'"):
        plan.build(load(target="NVIDIA H20"))
