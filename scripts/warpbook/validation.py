"""What is wrong with a user's file, in lines that a user can mend by: place, value, limit and nearest valid name."""

import types
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from warpbook.errors import nearest


def explained(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """A line for each mistake that a model found."""
    return [_explain(detail, model) for detail in error.errors()]


def _explain(detail: Any, model: type[BaseModel]) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{place}: unknown key: {nearest(str(detail['loc'][-1]), _keys_at(detail['loc'][:-1], model))}"
    if detail["type"] == "missing":
        return f"{place}: missing"
    message = detail["msg"].removeprefix("Value error, ")
    shown = "" if detail["type"] == "value_error" else f" (it is {detail['input']!r})"
    return f"{place}: {message}{shown}"


def _keys_at(place: tuple[int | str, ...], model: Any) -> list[str]:
    """The keys that a model knows at a place such as ("studies", "fa18")."""
    for part in place:
        if get_origin(model) in (dict, list):
            model = get_args(model)[-1]
        else:
            model = model.model_fields[part].annotation
        if get_origin(model) in (Union, types.UnionType):
            model = get_args(model)[0]
    return list(model.model_fields)
