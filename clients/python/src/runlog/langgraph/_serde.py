"""A serializer in LangGraph's format that reads and writes only types on a list.

LangGraph's `JsonPlusSerializer` imports and calls any name in the bytes that it reads. An environment variable makes it
strict, and then it returns plain data for a type off its list, without an error. `StrictSerializer` raises `TypeNotAllowed`
in both cases, and no environment variable changes that.

It decodes with msgspec. ormsgpack, which LangGraph uses, overflows the stack of the process at 16 KB of nested arrays.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import re
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime, time
from enum import Enum, auto
from typing import Any, cast

import msgspec
from langgraph.checkpoint.serde import _msgpack as lists  # pyright: ignore
from langgraph.checkpoint.serde import jsonplus as codes
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore

from ..errors import Error, Invalid, TypeNotAllowed, Usage
from ._types import types_in

TypeName = tuple[str, str]
"""Module and name: LangGraph's stored form of a type."""
Allowed = type | TypeName
"""A type with the types of its fields, or a type's module and name."""

NESTING_MAX = 128
"""Nesting depth of values of named types. Python's recursion limit may allow less."""
PATTERN_MAX = 1024
"""Characters of a regular expression, whose compilation can take a millisecond for each."""
WRITTEN_MAX = 32_768
"""Hashes that a serializer keeps, about 3 MB."""
_NAME_MAX = 200
_LANGGRAPH = JsonPlusSerializer(allowed_msgpack_modules=None)
"""Writes. It never reads."""
_SEND: TypeName = ("langgraph.types", "Send")
_MODELS = (codes.EXT_PYDANTIC_V1, codes.EXT_PYDANTIC_V2)
_MESSAGES = "langchain_core.messages."


class StrictSerializer(SerializerProtocol):
    """LangGraph's msgpack format for values of Python and LangGraph, messages and documents of LangChain, and `allow`.

    Errors: `TypeNotAllowed` for any other type, and `Invalid` for bytes that are not in the format. Written bytes
    are read back first, so that an unreadable value is never stored."""

    def __init__(self, allow: Iterable[Allowed] | None = None) -> None:
        self._types: dict[TypeName, frozenset[type]] = {}
        self._written: set[int] = set()
        """Hashes of encodings that need no list: a graph writes its messages again at each step. Copies share them."""
        self._allow(_closed(allow or ()))

    def _allow(self, allow: Iterable[Allowed]) -> None:
        for entry in allow:
            if isinstance(entry, type):
                name = (entry.__module__, entry.__name__)
                self._types[name] = self._types.get(name, frozenset()) | {entry}
            else:
                self._types.setdefault(entry, frozenset())

    def allowing(self, allow: Iterable[Allowed], *, closed: bool = False) -> StrictSerializer:
        """A serializer with more types on its list. `closed`: the types of all fields are among them."""
        more = copy.copy(self)
        more._types = dict(self._types)
        more._allow(allow if closed else _closed(allow))
        return more

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encodes a value. An exception of a type off the list is stored as its text, as LangGraph stores most of them."""
        try:
            kind, data = _LANGGRAPH.dumps_typed(obj)
        except TypeError as error:
            raise Invalid(f"a value of the type {_named(type(obj))} cannot be stored: {error}") from error
        if kind == "msgpack" and hash(data) not in self._written:
            try:
                self._read_back(obj, data)
            except Invalid:
                if isinstance(obj, BaseException):
                    return _LANGGRAPH.dumps_typed(repr(obj))
                raise
        return kind, data

    def _read_back(self, obj: object, data: bytes) -> None:
        names = _Decoder(self._types, _Mode.NAMES)
        names.decode(data)
        if names.all_messages:
            if len(self._written) >= WRITTEN_MAX:
                self._written.clear()
            self._written.add(hash(data))
            return
        decoder = _Decoder(self._types)
        again = decoder.decode(data)
        if decoder.was_lenient and again != obj:
            raise Invalid(f"a value of the type {_named(type(obj))} is not read back unchanged")
        if (type(obj).__module__, type(obj).__name__) in self._types and type(again) is not type(obj):
            raise Invalid(f"{_named(type(obj))} is not the type with its name on the list, {_named(type(again))}")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decodes a value."""
        kind, encoded = data
        match kind:
            case "null":
                return None
            case "bytes":
                return encoded
            case "bytearray":
                return bytearray(encoded)
            case "msgpack":
                return _Decoder(self._types).decode(encoded)
            case _:
                raise TypeNotAllowed(f"the format {_shown(kind)} is not read: it can call any function")


def _closed(allow: Iterable[Allowed]) -> set[Allowed]:
    """The entries of a list, with the types of all fields."""
    if isinstance(allow, (str, type)):
        raise Usage(f"allow= needs a list, as allow=[{getattr(allow, '__name__', allow)}]")
    closed: set[Allowed] = set()
    for entry in allow:
        if isinstance(entry, tuple) and [type(part) for part in entry] == [str, str]:
            closed.add(entry)
            continue
        types = {*types_in([entry]), *([entry] if isinstance(entry, type) else [])}
        if not types:
            raise Usage(f"allow= needs types, or pairs of a type's module and name, not {entry!r}")
        closed |= types
    return closed


class _Mode(Enum):
    BUILD = auto()
    NAMES = auto()
    """Checks the names of types, and builds nothing."""
    LENIENT = auto()
    """Replaces a value that cannot be built by its content. The enclosing model may build and validate it."""


class _Decoder:
    """Decodes one value."""

    def __init__(self, types: dict[TypeName, frozenset[type]], mode: _Mode = _Mode.BUILD) -> None:
        self._types, self._mode = types, mode
        self._depth = self._sets = 0
        self.all_messages = True
        """Whether all named types were LangChain's messages, which can be built from any content."""
        self.was_lenient = False

    def decode(self, data: bytes) -> Any:
        try:
            return self._unpack(data)
        except Error:
            raise
        except Exception as error:
            raise Invalid(f"a stored value cannot be decoded: {type(error).__name__}: {error}") from error

    def _unpack(self, data: bytes | memoryview) -> Any:
        value = msgspec.msgpack.decode(data, ext_hook=self._extension)
        # The format has no tuples. A list within a set was one.
        return _tuples(value) if self._sets else value

    def _extension(self, code: int, data: memoryview) -> Any:
        if self._depth >= NESTING_MAX:
            raise Invalid(f"a stored value has more than {NESTING_MAX} values of named types within each other")
        self._depth += 1
        try:
            return self._value(code, data)
        finally:
            self._depth -= 1

    def _value(self, code: int, data: memoryview) -> Any:
        if code == codes.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(self._unpack(data))
        if code == codes.EXT_NUMPY_ARRAY:
            return self._array(self._unpack(data))
        if not codes.EXT_CONSTRUCTOR_SINGLE_ARG <= code <= codes.EXT_PYDANTIC_V2:
            raise Invalid(f"a stored value has the msgpack extension {code}, which no known LangGraph writes")
        # Checks the names first, to report the outermost type: allowing it also allows the types of its fields.
        nested: list[int] = []
        parts = msgspec.msgpack.decode(data, ext_hook=lambda code, _: nested.append(code))
        if not isinstance(parts, list) or len(cast("list[Any]", parts)) not in (3, 4):
            raise Invalid("a stored value of a named type does not consist of the name and the content")
        module, name, *_ = cast("list[Any]", parts)
        self._check(module, name, is_model=code in _MODELS)
        try:
            return self._named_value(code, module, name, data, None if nested else cast("list[Any]", parts))
        except TypeNotAllowed:
            raise
        except Invalid:
            if code not in _MODELS or self._mode is not _Mode.BUILD:
                raise
            with suppress(Exception):
                return self._validated(module, name, data)
            raise

    def _named_value(self, code: int, module: str, name: str, data: memoryview, parts: list[Any] | None) -> Any:
        """Builds a value. `parts` has the decoded data if no value of a named type is in it."""
        if self._mode is _Mode.NAMES:
            if parts is None:
                self._unpack(data)
            return None
        try:
            kind = self._find(module, name)
        except TypeNotAllowed:
            raise
        except Invalid:
            if self._mode is _Mode.LENIENT:
                return self._unpack(data)[2]
            raise
        is_set = isinstance(kind, type) and issubclass(kind, (set, frozenset))
        self._sets += is_set
        try:
            _, _, content, *method = self._unpack(data) if parts is None or self._sets else parts
        finally:
            self._sets -= is_set
        try:
            return _build(code, kind, content, method)
        except TypeNotAllowed:
            raise
        except Exception as error:
            if self._mode is _Mode.LENIENT:
                return content
            why = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            raise Invalid(f"a value of the type {module}.{name} cannot be made again: {why}") from error

    def _validated(self, module: str, name: str, data: memoryview) -> Any:
        """A model, validated, with the content of a field's value in place of a value that cannot be made by itself."""
        lenient = _Decoder(self._types, _Mode.LENIENT)
        _, _, content, *_ = lenient._unpack(data)
        self.was_lenient = True
        return self._find(module, name).model_validate(content, by_name=True)

    def _array(self, parts: Any) -> Any:
        self.all_messages = False
        dtype, shape, order, buffer = parts
        if self._mode is _Mode.NAMES:
            return None
        sizes = cast("list[Any]", shape) if isinstance(shape, list) else [None]
        if not isinstance(dtype, str) or not isinstance(buffer, bytes) or any(type(size) is not int for size in sizes):
            raise Invalid("a stored array does not consist of an element type, a shape, an order and bytes")
        numpy = importlib.import_module("numpy")
        return numpy.frombuffer(buffer, dtype=numpy.dtype(dtype)).reshape(sizes, order=order)

    def _check(self, module: object, name: object, *, is_model: bool) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Invalid("a stored value has a type without a name")
        is_message = is_model and module.startswith(_MESSAGES)
        if (module, name) not in lists.SAFE_MSGPACK_TYPES and (module, name) not in self._types:
            raise TypeNotAllowed(
                f"the type {_shown(f'{module}.{name}')} is not allowed, and was not called; if the type is yours, pass it "
                "in allow=[…], or the pair of its module and its name"
            )
        self.all_messages = self.all_messages and is_message

    def _find(self, module: str, name: str) -> Any:
        """The type from the list, or the module's attribute if the list has only its name."""
        kinds = self._types.get((module, name), frozenset())
        if len(kinds) == 1:
            return next(iter(kinds))
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            if not kinds:
                raise Invalid(f"the type {module}.{name} of a stored value cannot be imported: {error}") from error
            found = None
        # A notebook can define a class again: its module has the newest.
        if kinds and (found not in kinds or len({kind.__qualname__ for kind in kinds}) > 1):
            raise Invalid(f"{len(kinds)} types on the list are named {module}.{name}: rename all but one of them")
        if not isinstance(found, type) and found is not re.compile:
            raise TypeNotAllowed(f"{module}.{name} is not a type, and was not called")
        return found


def _build(code: int, kind: Any, content: Any, method: list[Any]) -> Any:
    """The value, as `JsonPlusSerializer` builds it, except where that loses types."""
    if kind is re.compile:
        return _pattern(code, content)
    make: Any = kind
    match code:
        case codes.EXT_CONSTRUCTOR_SINGLE_ARG:
            if issubclass(kind, (set, frozenset, deque)):
                return make(_of_kind(content, (list, tuple)))
            if issubclass(kind, (date, time)):
                raise Invalid("one argument is the form of pickle")
            return _member(kind, content) if issubclass(kind, Enum) else make(content)
        case codes.EXT_CONSTRUCTOR_POS_ARGS:
            arguments = _of_kind(content, (list, tuple))
            if (kind.__module__, kind.__name__) == _SEND and len(arguments) == 3:
                return make(*arguments[:2], timeout=arguments[2])
            return make(*arguments)
        case codes.EXT_CONSTRUCTOR_KW_ARGS:
            return _with_fields(make, _of_kind(content, dict))
        case codes.EXT_METHOD_SINGLE_ARG:
            if method != ["fromisoformat"] or not issubclass(kind, datetime):
                raise TypeNotAllowed(
                    f"the method {_shown(method)} of {_named(kind)} is not allowed, and was not called"
                )
            return kind.fromisoformat(content)
        case _:
            members = _of_kind(content, dict)
            with suppress(Exception):
                return make(**members)
            if code == codes.EXT_PYDANTIC_V1:
                return make.construct(**members)
            # A model with aliases. JsonPlusSerializer does not validate it, and leaves its nested models as mappings.
            with suppress(Exception):
                return make.model_validate(members, by_name=True)
            return make.model_construct(**members)


def _of_kind(content: Any, kinds: type[Any] | tuple[type[Any], ...]) -> Any:
    """The content if it is plain data. An iterable value, such as a network of addresses, might not end."""
    if not isinstance(content, kinds):
        raise Invalid(f"its content is of the type {type(content).__name__}")
    return content


def _pattern(code: int, content: Any) -> re.Pattern[Any]:
    pattern, flags = _of_kind(content, (list, tuple))
    if code != codes.EXT_CONSTRUCTOR_POS_ARGS or not isinstance(pattern, (str, bytes)) or not isinstance(flags, int):
        raise Invalid("its content is not a pattern and flags")
    if len(pattern) > PATTERN_MAX:
        raise Invalid(f"it is longer than {PATTERN_MAX} characters")
    return re.compile(pattern, flags & ~re.DEBUG)


def _member(kind: type[Enum], value: Any) -> Enum:
    """The member with a value that had tuples."""
    with suppress(ValueError, TypeError):
        return kind(value)
    for member in kind:
        if _lists(member.value) == _lists(value):
            return member
    return kind(value)


def _with_fields(make: Any, members: dict[str, Any]) -> Any:
    if not dataclasses.is_dataclass(make):
        return make(**members)
    late = {field.name for field in dataclasses.fields(make) if not field.init} & members.keys()
    value = cast("Any", make)(**{name: member for name, member in members.items() if name not in late})
    for name in late:
        # Works for frozen values, too.
        object.__setattr__(value, name, members[name])
    return value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(member) for name, member in cast("dict[Any, Any]", value).items()}
    return tuple(map(_tuples, cast("list[Any]", value))) if isinstance(value, list) else value


def _lists(value: Any) -> Any:
    return [_lists(item) for item in cast("list[Any]", value)] if type(value) in (list, tuple) else value


def _shown(value: object) -> str:
    """Formats untrusted text for an error: escaped unless it looks like a name, and of bounded length."""
    text = value if isinstance(value, str) and re.fullmatch(r"[\w.\[\], ]+", value, re.ASCII) else ascii(value)
    return text if len(text) <= _NAME_MAX else f"{text[:_NAME_MAX]}…"


def _named(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def strict(serde: SerializerProtocol | None, allow: Iterable[Allowed] | None) -> SerializerProtocol:
    """The serializer that a user gave, with LangGraph's default replaced by `StrictSerializer`, also inside of an
    `EncryptedSerializer`. A serializer of the user's own stays as it is.

    Errors: `Usage` for a serializer of LangGraph's that reads any type or pickle, and for `allow` with a serializer of
    the user's own."""
    if serde is None:
        return StrictSerializer(allow)
    if isinstance(serde, StrictSerializer):
        return serde.allowing(allow or ())
    if isinstance(serde, EncryptedSerializer):
        return _encrypting(serde, strict(serde.serde, allow))
    if isinstance(serde, JsonPlusSerializer):
        names: Any = serde._allowed_msgpack_modules  # pyright: ignore
        if serde.pickle_fallback:
            raise Usage("a serializer with pickle_fallback runs code from the journal: pass allow=[…] instead")
        if type(serde) is JsonPlusSerializer and not serde._custom_unpack_ext_hook:  # pyright: ignore
            listed = cast("set[TypeName]", names) if isinstance(names, set) else set[TypeName]()
            return StrictSerializer([*listed, *(allow or ())])
        if names is True:
            raise Usage(f"{_named(type(serde))} calls any name in the journal: give it allowed_msgpack_modules=[…]")
    if allow:
        raise Usage(f"allow= has no effect on {_named(type(serde))}: let that serializer allow the types")
    return serde


def _encrypting(serde: EncryptedSerializer, inner: SerializerProtocol) -> EncryptedSerializer:
    """The same cipher around another serializer."""
    encrypted = copy.copy(serde)
    encrypted.serde = inner
    return encrypted


def allowing(serde: SerializerProtocol, allow: Iterable[Allowed], *, closed: bool = False) -> SerializerProtocol:
    """The serializer with more types on its list; a serializer of a user's own as it is."""
    if isinstance(serde, StrictSerializer):
        return serde.allowing(allow, closed=closed)
    if isinstance(serde, EncryptedSerializer):
        return _encrypting(serde, allowing(serde.serde, allow, closed=closed))
    if isinstance(serde, JsonPlusSerializer):
        return serde.with_msgpack_allowlist(allow)
    return serde
