"""What is wrong with a user's file, in lines that a user can mend by: place, value, limit and nearest valid name."""

import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from warpbook.common.errors import nearest_name

Model = TypeVar("Model", bound=BaseModel)

_SHOWN = 200  # characters of a value that is wrong

_READ_AS: dict[str, Callable[[str], Any]] = {
    "int_type": int,
    "float_type": float,
    "bool_type": {"true": True, "false": False}.__getitem__,
}
"""What a text is read as where something else should be, by the kind of a model's complaint."""


def validate(model: type[Model], values: Mapping[str, Any], context: Any = None) -> Model:
    """The values as a model, or ValidationError. A number or truth value may be a text wherever one is expected:
    Snakemake makes texts of what is nested in a value of `--config`."""
    try:
        return model.model_validate(values, context=context)
    except ValidationError as error:
        found: Any = values
        for detail in error.errors():
            if detail["type"] in _READ_AS and isinstance(detail["input"], str):
                found = _replace_at(found, detail["loc"], _READ_AS[detail["type"]])
        if found == values:
            raise
        return model.model_validate(found, context=context)


def _replace_at(values: Any, place: tuple[int | str, ...], read: Callable[[str], Any]) -> Any:
    """The same with the text at a place read, where it can be; a place may name a union's member or a key."""
    if isinstance(values, dict):
        return {key: _replace_at(one, place[1:], read) if key == place[0] else one for key, one in values.items()}
    if isinstance(values, list):
        return [_replace_at(one, place[1:], read) if number == place[0] else one for number, one in enumerate(values)]
    try:
        return read(values)
    except (KeyError, ValueError):
        return values


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """A line for each mistake that a model found."""
    return [_explain_error(detail, model) for detail in error.errors()]


def _explain_error(detail: Any, model: type[BaseModel]) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{place}: unknown key: {nearest_name(str(detail['loc'][-1]), keys_at(detail['loc'][:-1], model))}"
    if detail["type"] == "missing":
        return f"{place}: missing"
    message = detail["msg"].removeprefix("Value error, ")
    held = repr(detail["input"])
    held = held if len(held) <= _SHOWN else f"{held[:_SHOWN]}..."
    shown = "" if detail["type"] == "value_error" else f" (it is {held})"
    return f"{place}: {message}{shown}" if place else f"{message}{shown}"


def keys_at(place: tuple[int | str, ...], model: Any) -> list[str]:
    """The keys that a model knows at a place such as ("studies", "fa18")."""
    for part in place:
        if get_origin(model) in (dict, list):
            model = get_args(model)[-1]
        elif part in model.model_fields:
            model = model.model_fields[part].annotation
        else:
            model = get_args(model.__annotations__["__pydantic_extra__"])[-1]
        if get_origin(model) in (Union, types.UnionType):
            model = get_args(model)[0]
    return [field.alias or name for name, field in model.model_fields.items()]
