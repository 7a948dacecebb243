"""YAML, which every command reads of every kernel, by PyYAML's parser in C."""

from contextlib import suppress
from typing import Any

import yaml


def load_yaml(text: str) -> Any:
    """What a text holds. Raises YAMLError in the words of PyYAML's parser in Python, which names what it expected."""
    with suppress(yaml.YAMLError):
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return yaml.safe_load(text)
