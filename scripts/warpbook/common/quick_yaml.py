"""YAML, which every command reads of every kernel, by PyYAML's parser in C."""

from pathlib import Path
from typing import Any

import yaml

from warpbook.common.errors import UserError, first_line

DEEPEST = 100
"""So many collections may lie in each other: the parser calls itself for each, in C, where the stack's end is the process's."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """What a text holds. Raises YAMLError in the words of PyYAML's parser in Python, which names what it expected; and
    where more than DEEPEST collections lie in each other."""
    try:
        _refuse_deep_nesting(text)
        return yaml.load(text, Loader=_LOADER)
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError):
        return yaml.safe_load(text)


def load_configuration(path: Path) -> Any:
    """What a file of the user's holds. Raises UserError with the line that is wrong."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else first_line(error)
        raise UserError(f"{path} cannot be read: {reason}") from error


def _refuse_deep_nesting(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} lists and mappings lie in each other")
