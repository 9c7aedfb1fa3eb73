"""Marks and copies of simple values: messages of LangChain, and plain data. They save the serializer, which takes most of the time
of a turn in a long thread.

    write   value ─▶ mark ─┬─▶ known: its piece is stored already, and the value is not encoded again
                           └─▶ new: encoded; if it is simple, its mark becomes known
    read    piece that this process wrote or read ─▶ copy of its value

A mark covers the whole content of a value and the types in it, so a value that was changed has another mark. Marks and copies are
only in memory. No bytes from the journal are read as a mark or a copy.
"""

from __future__ import annotations

import functools
import hashlib
import marshal
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages import BaseMessage

_MESSAGES = "langchain_core.messages."
_PLAIN = frozenset((str, int, float, bool, type(None), list, dict))
_LEAVES = frozenset((str, int, float, bool, type(None)))
_VERSION = 2
"""Of `marshal`. Later versions write objects that occur twice as references, so equal values have several texts."""
_LIST_HEAD = 5
"""Bytes before the items in the text of a list: a type and a count."""
_DEPTH_MAX = 64


@functools.lru_cache(maxsize=256)
def _is_message(kind: Any) -> bool:
    # A subclass elsewhere may have state or a serializer of its own.
    return issubclass(kind, BaseMessage) and kind.__module__.startswith(_MESSAGES)


def mark_of(value: Any) -> bytes | None:
    """The mark of a value. `None` for a value that has none. A mark counts only if `is_simple` holds for a value that had it: it
    does not distinguish bytes from other buffers."""
    kind = cast("Any", type(value))
    try:
        if kind in _PLAIN:
            return hashlib.sha256(marshal.dumps(value, _VERSION)).digest()
        if not _is_message(kind) or value.__pydantic_private__:
            return None
        content = marshal.dumps((value.__dict__, value.__pydantic_extra__), _VERSION)
    except ValueError:
        # A type that marshal does not know, such as a subclass.
        return None
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\0".encode() + content).digest()


def is_simple(value: Any) -> bool:
    """Whether a value is plain data, or a message of plain data."""
    if type(value) in _PLAIN:
        return _is_plain(value, 0)
    if not _is_message(cast("Any", type(value))):
        return False
    return _is_plain(value.__dict__, 0) and _is_plain(value.__pydantic_extra__, 0)


def _is_plain(value: Any, depth: int) -> bool:
    kind = cast("type[Any]", type(value))
    if kind in _LEAVES:
        return True
    if depth == _DEPTH_MAX:
        return False
    if kind is list:
        return all(_is_plain(each, depth + 1) for each in cast("list[Any]", value))
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        return all(type(name) is str and _is_plain(each, depth + 1) for name, each in members.items())
    return False


class Prefix:
    """The contents of a list of simple values. Compares them with the beginning of another list, all at once."""

    def __init__(self) -> None:
        self._kinds, self._hash = list[type](), hashlib.sha256()

    def begins(self, values: list[Any]) -> Prefix | None:
        """The prefix itself, if `values` begins with equal values of the same types."""
        count = len(self._kinds)
        if list(map(type, values[:count])) != self._kinds:
            return None
        content = _contents(values[:count])
        return self if content is not None and hashlib.sha256(content).digest() == self._hash.digest() else None

    def with_items(self, values: list[Any]) -> Prefix | None:
        """The prefix with more values, all of which are simple."""
        if (content := _contents(values)) is None:
            return None
        more = Prefix()
        more._kinds, more._hash = [*self._kinds, *map(type, values)], self._hash.copy()
        more._hash.update(content)
        return more


def _contents(values: list[Any]) -> memoryview | None:
    """The contents of values, one after the other. The contents of two lists together are the contents of the whole list."""
    try:
        data = marshal.dumps([_content(value) for value in values], _VERSION)
    except ValueError:
        return None
    return memoryview(data)[_LIST_HEAD:]


def _content(value: Any) -> Any:
    return (value.__dict__, value.__pydantic_extra__) if isinstance(value, BaseMessage) else value


class Template:
    """Makes equal values."""

    __slots__ = ("_content", "_fields", "_kind")

    def __init__(self, value: Any) -> None:
        """The value is simple."""
        kind = cast("Any", type(value))
        if kind in _PLAIN:
            self._kind, self._content, self._fields = None, marshal.dumps(value, _VERSION), frozenset[str]()
        else:
            self._kind, self._fields = kind, frozenset(value.__pydantic_fields_set__)
            self._content = marshal.dumps((value.__dict__, value.__pydantic_extra__), _VERSION)

    def make(self) -> Any:
        """A new value. A change of it changes no other value."""
        if self._kind is None:
            return marshal.loads(self._content)
        members, extra = marshal.loads(self._content)
        return _message(self._kind, members, extra, self._fields)


def _message(kind: Any, members: Mapping[str, Any], extra: Any, fields: frozenset[str]) -> Any:
    """Builds a message as Pydantic's own copy does: its content was validated when the original was made."""
    message = kind.__new__(kind)
    put = object.__setattr__
    put(message, "__dict__", members)
    put(message, "__pydantic_fields_set__", set(fields))
    put(message, "__pydantic_extra__", extra)
    put(message, "__pydantic_private__", None)
    return message


def template_of(value: Any) -> Template | None:
    """The template of a simple value; `None` for any other value."""
    if not is_simple(value):
        return None
    template = Template(value)
    return template if template.make() == value else None
