"""A reader for people: values of any type as plain data with the type's name. It imports and calls no type."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from langgraph.checkpoint.serde import jsonplus as codes
from langgraph.checkpoint.serde.base import SerializerProtocol

from ..errors import Invalid, Usage

_MESSAGES = "langchain_core.messages."


class PlainSerializer(SerializerProtocol):
    """Reads values in LangGraph's format as JSON has them. It writes nothing."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Raises `Usage`: a saver with this serializer only reads."""
        raise Usage("this saver shows threads, and writes none")

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decodes a value."""
        kind, encoded = data
        match kind:
            case "null":
                return None
            case "msgpack":
                return _plain(encoded)
            case "bytes" | "bytearray":
                return {kind: _text(encoded)}
            case _:
                raise Invalid(
                    f"its format is {kind!r}, which is encrypted or the application's own: only the application can read it"
                )


def _plain(data: bytes | memoryview) -> Any:
    return _json(msgspec.msgpack.decode(data, ext_hook=_extension))


def _extension(code: int, data: memoryview) -> dict[str, Any]:
    if not codes.EXT_CONSTRUCTOR_SINGLE_ARG <= code <= codes.EXT_PYDANTIC_V2:
        return {"extension": code, "content": _plain(data)}
    parts: Any = msgspec.msgpack.decode(data, ext_hook=_extension)
    module, name, content, *_ = cast("list[Any]", parts)
    if isinstance(content, dict) and str(module).startswith(_MESSAGES):
        # A message names its type itself.
        members = cast("dict[str, Any]", content)
        return {member: value for member, value in members.items() if value or member in ("type", "content")}
    return {f"{module}.{name}": content}


def _json(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _json(each) for key, each in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_json(each) for each in cast("list[Any]", value)]
        case bytes():
            return _text(value)
        case _:
            return value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()
