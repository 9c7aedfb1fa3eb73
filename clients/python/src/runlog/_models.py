"""Converts Pydantic models to JSON as `model_dump(mode="json")` does, but with sorted sets.

Pydantic lists a set in the order in which Python iterates over it, and that order differs from process to process. So Pydantic
gets a copy of the model whose sets iterate in the order of the canonical text of their elements. Pydantic is not imported here.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import decimal
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from ._json import Json, set_order
from ._texts import NoJson, key_text, text_of
from .errors import Invalid

ToJson = Callable[[object], Json]

_LEAVES = frozenset((str, int, float, bool, type(None), dt.datetime, dt.date, uuid.UUID, decimal.Decimal))


def is_pydantic(value: object) -> bool:
    """Whether a value is a model of Pydantic."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def fields_of(model: Any) -> Iterator[tuple[str, object]]:
    """The members of a model by their names in Python."""
    for name in _names(model):
        yield name, getattr(model, name)


def _names(model: Any) -> list[str]:
    kind: Any = cast("Any", type(model))
    return [*kind.model_fields, *(model.model_extra or ())]


def dumped(model: Any, to_json: ToJson) -> Any:
    """The JSON of a model. `to_json` converts values outside of models."""
    order = _Order(to_json)
    ordered = order.of(model)
    try:
        plain = ordered.model_dump(mode="json")
    except Exception:
        # In fields of any type Pydantic knows fewer types than `to_json`, and it refuses bytes that are not UTF-8.
        copied = _Order(to_json, bytes_as_json=True).of(model)
        plain = copied.model_dump(mode="json", warnings=False, fallback=to_json)
    return _sort_computed(ordered, plain, is_computed=False) if order.found_computed else plain


def in_order(value: Any, to_json: ToJson) -> Any:
    """Returns the value, or a copy whose sets iterate in the order of their elements' canonical texts.

    Raises `Invalid` for mappings with two keys of the same text."""
    return _Order(to_json).of(value)


class _OrderedSet(set[Any]):
    """A set that iterates in order."""

    order: list[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.order)


class _OrderedFrozenSet(frozenset[Any]):
    """A frozenset that iterates in order."""

    order: list[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.order)


class _Order:
    """Makes sets iterate in order, in a copy of a value."""

    def __init__(self, to_json: ToJson, *, bytes_as_json: bool = False) -> None:
        self._to_json, self._bytes_as_json = to_json, bytes_as_json
        self.found_computed = False
        """Whether a model has computed fields, which the copy computes when it is dumped."""

    def of(self, value: Any) -> Any:
        """Returns the value, or a copy if it has sets."""
        if type(value) in _LEAVES:
            return value
        if isinstance(value, set | frozenset):
            return self._set(cast("AbstractSet[Any]", value))
        if is_pydantic(value):
            kind: Any = cast("Any", type(value))
            self.found_computed = self.found_computed or bool(kind.model_computed_fields)
            changes = self._changes((name, getattr(value, name)) for name in _names(value))
            return value.model_copy(update=changes) if changes else value
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value))
        if isinstance(value, list | tuple | deque):
            return self._elements(cast("Any", value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            members = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
            changes = self._changes(members)
            changed = copy.copy(value) if changes else value
            for name, member in changes.items():
                object.__setattr__(changed, name, member)
            return changed
        if self._bytes_as_json and isinstance(value, bytes | bytearray):
            return text_of(value)
        return value

    def _set(self, value: AbstractSet[Any]) -> Any:
        ordered = (_OrderedSet if isinstance(value, set) else _OrderedFrozenSet)(value)
        ordered.order = sorted(map(self.of, value), key=self._element_order)
        return ordered

    def _elements(self, value: Any) -> Any:
        elements: list[Any] = [*value]
        make: Any = getattr(value, "_make", None)
        ordered = [self.of(element) for element in elements]
        if all(one is other for one, other in zip(elements, ordered, strict=True)):
            return value
        plain: Any = list if isinstance(value, list) else tuple if isinstance(value, tuple) else deque
        return (make or plain)(ordered)

    def _changes(self, members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        ordered = ((name, member, self.of(member)) for name, member in members)
        return {name: now for name, member, now in ordered if now is not member}

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        names: set[str] = set()
        for key in value:
            try:
                name = key_text(key)
            except Invalid:
                continue  # Pydantic may have a text for it
            if name in names:
                raise NoJson(f"two keys are the same text {name!r}")
            names.add(name)
        members = {key: self.of(member) for key, member in value.items()}
        return members if any(members[key] is not member for key, member in value.items()) else value

    def _element_order(self, element: Any) -> str:
        try:
            return set_order(self._to_json(element))
        except Invalid:
            from pydantic_core import to_jsonable_python

            # Only Pydantic has a text for this type. Other types fail, as in the dump.
            return set_order(to_jsonable_python(element))


def _sort_computed(value: Any, plain: Any, *, is_computed: bool) -> Any:
    """Sorts the sets of computed fields in the JSON of a value."""
    if isinstance(plain, list):
        elements = cast("list[Any]", plain)
        if isinstance(value, set | frozenset):
            return _sort(cast("AbstractSet[Any]", value), elements) if is_computed else elements
        if isinstance(value, list | tuple) and len(cast("list[Any]", value)) == len(elements):
            pairs = zip(cast("list[Any]", value), elements, strict=True)
            return [_sort_computed(one, other, is_computed=is_computed) for one, other in pairs]
    elif isinstance(plain, dict):
        members = cast("dict[str, Any]", plain)
        for key, part, computed in _parts(value, members):
            members[key] = _sort_computed(part, members[key], is_computed=is_computed or computed)
    return cast("Any", plain)


def _sort(made: AbstractSet[Any], elements: list[Any]) -> list[Any]:
    if any(isinstance(element, set | frozenset) for element in made):
        elements = [sorted(cast("list[Any]", e), key=set_order) if isinstance(e, list) else e for e in elements]
    return sorted(elements, key=set_order)


def _parts(value: Any, members: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yields the members of a value's JSON: the name, the part of the value, and whether a computed field made the member."""
    if is_pydantic(value):
        kind: Any = cast("Any", type(value))
        computed: dict[str, Any] = kind.model_computed_fields
        fields: dict[str, Any] = kind.model_fields
        for name, info in computed.items():
            for key in {name, info.alias} & members.keys():
                yield key, getattr(value, name), True
        for name, info in fields.items():
            for key in {name, info.serialization_alias} & members.keys():
                yield key, getattr(value, name), False
    elif isinstance(value, Mapping):
        parts = cast("Mapping[Any, Any]", value).values()
        if len(parts) == len(members):
            yield from ((key, part, False) for key, part in zip(list(members), parts, strict=True))
