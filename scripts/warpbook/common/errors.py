"""Failures that the user can fix, and how a program shows them."""

import atexit
import gc
import sys
from collections.abc import Callable
from difflib import get_close_matches

from warpbook.common import parent_process, text_encoding

SCREEN_LINES, LINE_CHARACTERS = 20, 1000


class UserError(Exception):
    """A failure that the user can fix. The message gives the value, the limit that it broke and the remedy."""


class MachineFault(UserError):
    """Trouble of the machine, as a full disk, in a check: no verdict and no output; the next command tries again."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's words, or its type's name where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def one_screen(error: UserError) -> str:
    """An error's words, those beyond a screen counted."""
    lines = str(error).splitlines()
    shown = [
        f"{line[:LINE_CHARACTERS]}... and {len(line) - LINE_CHARACTERS:,} more characters"
        if len(line) > LINE_CHARACTERS
        else line
        for line in lines[:SCREEN_LINES]
    ]
    more = [f"... and {len(lines) - SCREEN_LINES:,} more lines"] if len(lines) > SCREEN_LINES else []
    return "\n".join([*shown, *more])


def nearest_name(name: str, valid: list[str] | tuple[str, ...]) -> str:
    """The end of a sentence about a misspelt name: the nearest valid name, or all of them."""
    close = get_close_matches(name, valid, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid: {', '.join(sorted(valid)) or 'none'}"


def exit_status(main: Callable[[], int | None], failed: int = 2) -> int:
    """Run `main` and return its exit status; a UserError becomes one screen on stderr and status `failed`."""
    text_encoding.require_utf8()
    parent_process.end_with_snakemake()
    atexit.register(gc.freeze)  # Python would look for garbage among all modules: a seventh of a short program
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {one_screen(error)}", file=sys.stderr)
        return failed
    except BrokenPipeError:
        # The reader of our output closed the pipe (`... | head`): no failure.
        sys.stderr.close()
        return 0
