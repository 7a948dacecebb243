"""Answers kept with who gave them: evidence does not change while a report is made of it, and many places ask it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def cached_method(method: Callable[Concatenate[Self, Asked], Answer]) -> Callable[Concatenate[Self, Asked], Answer]:
    """A method that works out each answer once for each object; who gets one must leave it as it is."""

    @wraps(method)
    def answer(self: Self, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        answers: dict[Any, Answer] = self.__dict__.setdefault("_answers", {})
        asked = (method.__name__, args, tuple(kwargs.items()))
        if asked not in answers:
            answers[asked] = method(self, *args, **kwargs)
        return answers[asked]

    return answer
