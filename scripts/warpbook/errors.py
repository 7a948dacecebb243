"""Failures that the user can mend, and how a program shows them."""

import sys
from collections.abc import Callable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can mend. The message gives the value, the limit it broke and the remedy."""


def nearest(name: str, valid: list[str] | tuple[str, ...]) -> str:
    """A sentence ending that helps with a misspelt name: the nearest valid one, or all of them."""
    close = get_close_matches(name, valid, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"valid: {', '.join(sorted(valid)) or 'none'}"


def exit_status(main: Callable[[], int | None]) -> int:
    """Run `main` and return its exit status; a UserError becomes one screen on stderr and status 2."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output went away (`... | head`): nothing is wrong here.
        sys.stderr.close()
        return 0
