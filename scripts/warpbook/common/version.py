"""Which code made a figure: its version, its commit, and whether the working tree differs from that."""

import subprocess
import tomllib

from warpbook.common.files import LIBRARY, PROJECT

# Read from the one place that says it: a new version is no reason to measure again.
VERSION: str = tomllib.loads((LIBRARY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def commit() -> tuple[str, bool | None]:
    """(commit, whether tracked files differ from it or untracked ones are there); ("", None) where git cannot tell.

    Archived runs are left aside: measuring makes them, and nothing is measured by them."""

    def git_output(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git_output("rev-parse", "HEAD"), bool(git_output("status", "--porcelain", "--", ".", ":!reports/runs"))
    except (OSError, subprocess.CalledProcessError):
        return "", None
