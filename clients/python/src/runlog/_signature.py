"""The signature of a tool. It is checked when the function is decorated, and defines a call's recorded arguments.

    def book(call, flight: str, seats: int = 1)         book("HAT136", seats=2) ─▶ {"flight": "HAT136", "seats": 2}
                                                        book("HAT136")          ─▶ "HAT136"

Defaults are not recorded: a tool still finds its recorded calls after it gets another parameter with a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import BoundArguments, Parameter
from typing import Any

from ._effect import Call
from ._values import to_json
from .errors import Usage

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_ANY_NUMBER = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

Key = Callable[..., str | None]


class ToolSignature:
    """The parameters of a tool's function after `call`, and of its key. Raises `Usage` if no call can fit them."""

    def __init__(self, function: Callable[..., Any], name: str, key: Key | None) -> None:
        self._name = name
        whole = _signature(function)
        parameters = list(whole.parameters.values()) if whole is not None else []
        if whole is None or not parameters or not _takes_call(parameters[0]):
            raise self._wrong("its first parameter is not `call`: write `def book(call, flight: str)`")
        rest = parameters[1:]
        if any(parameter.kind in _ANY_NUMBER for parameter in rest):
            raise self._wrong("it has `*` or `**` parameters: name each argument, so that it can be recorded")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise self._wrong("it is a generator, which runs after the call: return one result")
        self.public = whole.replace(parameters=rest)
        """The signature for callers, without `call`."""
        self._names = [parameter.name for parameter in rest]
        self._alone = len(rest) == 1 and rest[0].default is Parameter.empty
        if key is not None and not callable(key):
            raise self._wrong(
                f"its key is a function of its parameters, not {key!r}: `key=lambda {', '.join(self._names)}: …`"
            )
        self._key = self._key_by_name(key) if key is not None else None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundArguments:
        """Binds the arguments of a call. Raises `Usage` if they do not fit."""
        try:
            return self.public.bind(*args, **kwargs)
        except TypeError as error:
            raise self._wrong(f"{error}; its parameters are {self.public}") from None

    def recorded(self, bound: BoundArguments) -> object:
        """The recorded arguments, which identify the call: the arguments that the caller passed, by name. A single
        first argument is recorded alone, unless it could be mistaken for an object of several arguments."""
        given = bound.arguments
        if self._names and list(given) == self._names[:1]:
            value = given[self._names[0]]
            if self._alone:
                return value
            value = to_json(value)
            if not (isinstance(value, Mapping) and value.keys() <= set(self._names)):
                return value
        return dict(given)

    def key(self, bound: BoundArguments) -> str | None:
        """The idempotency key of a call."""
        return self._key(bound) if self._key is not None else None

    def _key_by_name(self, key: Key) -> Callable[[BoundArguments], str | None]:
        """Computes the key: from the only argument by position, or from the arguments that its parameters name."""
        signature = _signature(key)
        if len(self._names) == 1 and (signature is None or _takes_one(signature)):
            return lambda bound: key(self._with_defaults(bound)[self._names[0]])
        parameters = signature.parameters.values() if signature is not None else ()
        named = [parameter.name for parameter in parameters if parameter.kind in _BY_NAME]
        needed = [parameter.name for parameter in parameters if parameter.default is Parameter.empty]
        if signature is None or not set(needed) <= set(named) & set(self._names):
            raise self._wrong(
                f"its key has the parameters {signature}, and the tool {self.public}: name parameters of the tool"
            )
        names = [name for name in named if name in self._names]

        def by_name(bound: BoundArguments) -> str | None:
            values = self._with_defaults(bound)
            return key(**{name: values[name] for name in names})

        return by_name

    def _with_defaults(self, bound: BoundArguments) -> Mapping[str, Any]:
        whole = BoundArguments(self.public, bound.arguments.copy())  # pyright: ignore
        whole.apply_defaults()
        return whole.arguments

    def _wrong(self, why: str) -> Usage:
        return Usage(f"tool {self._name}: {why}")


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        # A C function may have no signature.
        return None


def _takes_call(parameter: Parameter) -> bool:
    """Checks name or type: any other first parameter would receive the call instead of its argument."""
    if parameter.kind not in _BY_POSITION:
        return False
    hint: object = parameter.annotation
    named = hint.rpartition(".")[2] == Call.__name__ if isinstance(hint, str) else hint is Call
    return named or parameter.name == "call" or parameter.name.startswith("_")


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
