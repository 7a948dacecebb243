"""Every text here is UTF-8, whatever the locale says."""

import locale
import os
import sys


def require_utf8() -> None:
    """Begin this program, and what it starts, anew in Python's UTF-8 mode where its locale differs."""
    if locale.getpreferredencoding(False).lower() in ("utf-8", "utf8") or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
