"""What a job on a GPU imports before its turn, so that the GPU does not wait for it. None of these modules touches CUDA
when it is imported, which would not survive the fork of the process that measures."""

import importlib
from contextlib import suppress


def import_packages(*packages: str) -> None:
    """Import packages that variants require, those that are here, and then the harness for GPUs: PyTorch does not load
    after NVRTC, which exports clashing C++ symbols."""
    for package in filter(None, packages):
        with suppress(Exception):  # who needs it imports it again, and says what is wrong with it
            importlib.import_module(package)
    import numpy.ma  # noqa: F401  # which numpy.median imports when it is first called

    from warpbook.harness import gpu_bench  # noqa: F401
