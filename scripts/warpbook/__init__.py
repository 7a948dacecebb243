"""A laboratory notebook for CUDA kernels: `check`, `time`, `read`, `list_runs` and `list_kernels` for Python, the command
`warpbook` for a shell.

Nothing is imported until it is asked for: every worker begins by importing this package.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from warpbook.api import Timing as Timing
    from warpbook.api import check as check
    from warpbook.api import list_kernels as list_kernels
    from warpbook.api import list_runs as list_runs
    from warpbook.api import read as read
    from warpbook.api import time as time

__all__ = ["Timing", "check", "list_kernels", "list_runs", "read", "time"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'warpbook' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("warpbook.api"), name)
