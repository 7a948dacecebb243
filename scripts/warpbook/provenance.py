"""Which code made a figure: the commit, and whether the working tree differs from it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commit() -> tuple[str, bool | None]:
    """(commit, whether tracked files differ from it or untracked ones stand beside); ("", None) where git cannot
    tell."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "", None
    return head.stdout.strip(), bool(changes.stdout.strip())
