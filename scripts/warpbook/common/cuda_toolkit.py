"""Programs of the CUDA toolkit, wherever it is installed."""

import os
import shutil
import sys
from pathlib import Path

USUAL = Path("/usr/local/cuda")


def find_program(name: str) -> Path | None:
    """Where a program lies: on PATH, in CUDA_HOME or CUDA_PATH, in the usual place, or in NVIDIA's wheels; None where it is
    in none of them."""
    homes = [Path(os.environ[variable]) for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    wheels = [Path(path) / "nvidia" / kind for path in sys.path for kind in ("cu13", "cuda_nvcc")]
    on_path = shutil.which(name)
    candidates = [*([Path(on_path)] if on_path else []), *(home / "bin" / name for home in [*homes, USUAL, *wheels])]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)
