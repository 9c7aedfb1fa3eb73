"""The types that annotations name, and that the state of a graph can therefore have."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import functools
import inspect
import ipaddress
import pathlib
import sys
import typing
import uuid
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time, timedelta, tzinfo
from typing import Any, cast

from typing_extensions import is_typeddict

_STORED_BASES = (
    enum.Enum, set, frozenset, deque, pathlib.PurePath, uuid.UUID, decimal.Decimal, date, time, timedelta, tzinfo,
    ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv6Address, ipaddress.IPv6Network,
)  # fmt: skip
"""LangGraph stores a subclass of these by its name."""
_STORED_METHODS = ("model_dump", "get_secret_value", "dict", "_asdict")
"""LangGraph stores an object with one of these methods by its type's name."""

_of_graphs: weakref.WeakKeyDictionary[Any, weakref.WeakSet[type]] = weakref.WeakKeyDictionary()
"""A type can have a reference to its graph, and must not keep it."""


def types_in(hints: Iterable[Any]) -> Iterator[type]:
    """The types in annotations, and in the fields of these types, that LangGraph stores by name: models, dataclasses, named
    tuples, enums and the like. An annotation that cannot be resolved is left out."""
    todo, seen = list(hints), dict[int, Any]()
    while todo:
        hint = todo.pop()
        if id(hint) in seen:
            continue
        # The reference keeps the id from being used again.
        seen[id(hint)] = hint
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) is typing.Annotated:
            arguments = arguments[:1]
        todo += arguments
        todo += [_attribute(hint, name) for name in ("__origin__", "__supertype__", "__value__", "__bound__")]
        todo += _attribute(hint, "__constraints__") or ()
        if isinstance(hint, enum.Enum):
            todo.append(type(hint))
        if isinstance(hint, type):
            kind = cast("type[Any]", hint)
            todo += _fields(kind)
            if _is_stored_by_name(kind):
                yield kind


def _attribute(value: Any, name: str) -> Any:
    """An attribute, or none if it cannot be computed, as a lazy annotation with a name that only a type checker knows."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _mapping(value: Any, name: str) -> dict[str, Any]:
    found = _attribute(value, name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_stored_by_name(kind: type[Any]) -> bool:
    if issubclass(kind, enum.Enum):
        # A call of an enum without members makes a new class.
        return len(kind) > 0
    if dataclasses.is_dataclass(kind) or issubclass(kind, _STORED_BASES):
        return True
    return kind.__module__ != "builtins" and any(callable(_attribute(kind, name)) for name in _STORED_METHODS)


def _fields(kind: type[Any]) -> list[Any]:
    """The annotations of the fields of a model, a dataclass, a typed dictionary or a named tuple, and the types of the values
    of an enum."""
    if issubclass(kind, enum.Enum):
        return [type(member.value) for member in kind]
    for members, annotation in (("model_fields", "annotation"), ("__fields__", "outer_type_")):
        fields = _attribute(kind, members)
        if isinstance(fields, dict):
            return [_attribute(field, annotation) for field in cast("dict[str, Any]", fields).values()]
    if dataclasses.is_dataclass(kind):
        hints = _annotations(kind)
        return [hints.get(field.name) for field in dataclasses.fields(kind)]
    if is_typeddict(kind) or hasattr(kind, "_fields"):
        return list(_annotations(kind).values())
    return []


def _annotations(kind: type[Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:
        # One annotation has a name that only a type checker knows, or names a class in a function.
        return {name: hint for base in kind.__mro__[::-1] for name, hint in _own_annotations(base).items()}


def _own_annotations(kind: type[Any]) -> Mapping[str, Any]:
    names = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
    return {name: _resolved(hint, names, vars(kind)) for name, hint in _mapping(kind, "__annotations__").items()}


def _resolved(hint: Any, names: Mapping[str, Any], local: Mapping[str, Any]) -> Any:
    """An annotation, also if it is the text of one. `None` if it has an undefined name."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, dict(names), dict(local))
    except Exception:
        return None


def types_of_graph(graph: Any) -> weakref.WeakSet[type]:
    """The types that a compiled graph and its subgraphs name: in schemas, in channels, and as the input and the output of the
    functions of their nodes."""
    types = _of_graphs.get(graph)
    if types is None:
        types = _of_graphs[graph] = weakref.WeakSet(types_in(_hints_of_graph(graph, set())))
    return types


def _hints_of_graph(graph: Any, seen: set[int]) -> list[Any]:
    if id(graph) in seen:
        return []
    seen.add(id(graph))
    hints: list[Any] = list(_attribute(_attribute(graph, "builder"), "schemas") or ())
    for channel in _mapping(graph, "channels").values():
        hints += [_attribute(channel, "ValueType"), _attribute(channel, "UpdateType")]
    for node in _mapping(graph, "nodes").values():
        bound = _attribute(node, "bound")
        for step in (bound, *(_attribute(bound, "steps") or ())):
            hints += _signature(_attribute(step, "func") or _attribute(step, "afunc"))
        for subgraph in _attribute(node, "subgraphs") or ():
            hints += _hints_of_graph(subgraph, seen)
    return hints


def _signature(function: Any) -> list[Any]:
    """The annotations of the first parameter and of the result."""
    try:
        signature = inspect.signature(function)
    except Exception:
        return []
    hints = [*[parameter.annotation for parameter in signature.parameters.values()][:1], signature.return_annotation]
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    names = _mapping(inspect.unwrap(function), "__globals__")
    return [_resolved(hint, names, {}) for hint in hints]
