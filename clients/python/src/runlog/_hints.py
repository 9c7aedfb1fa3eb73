"""Type annotations at runtime: the return type of a tool, and the types of the members of a class."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

_LOGGER = logging.getLogger("runlog")


class ReturnType:
    """The annotation of a tool's result. Resolved at the first use: a module may define the type after the tool."""

    def __init__(self, function: Callable[..., Any], tool: str) -> None:
        self._function, self._tool = function, tool
        self._hints: list[Any] = []

    def hint(self) -> Any:
        """The type; `None` without one. Warns once of an annotation that cannot be resolved."""
        if not self._hints:
            try:
                self._hints.append(self._resolved())
            except Exception as error:
                _LOGGER.warning(
                    "the return annotation of %s cannot be resolved, so its recorded results stay JSON: %s: %s. Import the type at "
                    "runtime, and define it in the module",
                    self._tool,
                    type(error).__name__,
                    error,
                )
                self._hints.append(None)
        return self._hints[0]

    def _resolved(self) -> Any:
        function: Any = self._function
        while isinstance(function, functools.partial):
            function = function.func
        if not hasattr(function, "__annotations__") or not (inspect.isroutine(function) or isinstance(function, type)):
            function = type(function).__call__
        annotations: Mapping[str, Any] = getattr(function, "__annotations__", {})
        if "return" not in annotations:
            return None
        function = inspect.unwrap(function)
        names = getattr(function, "__globals__", {})
        return _resolve(annotations["return"], names, _enclosing(function))


def _enclosing(function: Any) -> dict[str, Any]:
    """The names of enclosing functions that a function uses."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    values: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return values


def _resolve(hint: Any, global_names: dict[str, Any], local_names: dict[str, Any]) -> Any:
    annotated = types.SimpleNamespace(__annotations__={"member": hint})
    return typing.get_type_hints(annotated, global_names, local_names)["member"]


def hints_of(kind: Any, parts: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The types of the members of a class; of a generic class with `parts` as its parameters. Leaves out types that cannot be
    resolved."""
    hints = _hints_of(kind)
    arguments = dict(zip(getattr(kind, "__parameters__", ()), parts, strict=False))
    return {name: _with_arguments(hint, arguments) for name, hint in hints.items()} if arguments else hints


def _hints_of(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:
        hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        members = cast("Mapping[str, Any]", vars(base))
        for name, hint in inspect.get_annotations(base).items():
            try:
                # As in `get_type_hints`, a name of the module comes before a member of the class with the same name.
                hints[name] = _resolve(hint, dict(members), names)
            except Exception:
                hints.pop(name, None)
    return hints


def _with_arguments(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """A type with its parameters replaced."""
    if hint in arguments:
        return arguments[hint]
    parameters: tuple[Any, ...] = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not any(parameter in arguments for parameter in parameters):
        return hint
    return hint[tuple(arguments.get(parameter, parameter) for parameter in parameters)]
