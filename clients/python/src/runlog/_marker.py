"""The marker that ends a call whose result cannot be recorded (docs/protocol.md, "Results that cannot be recorded").

    {"runlog.result_not_recorded": {"call": "…", "reason": "no_json", "message": "…", "type": "shop.Cart", "bytes": null}}

`call` is the record id of the request. It distinguishes a marker from every other result: from results that were
recorded earlier, by other clients, and from markers of other calls. A result that has the marker of its own call is
itself left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from ._json import Json, encode
from ._records import Record, new_id, payload_of
from .errors import Error, TooLarge, visible

MARKER = "runlog.result_not_recorded"
TEXT_MAX = 1000
"""Maximum characters of a marker's message, and of a truncated failure message."""
_LOGGER = logging.getLogger("runlog")


def marker(call: str, reason: str, message: str, *, type_name: str | None = None, size: int | None = None) -> Json:
    """The marker of a call. `size` is the bytes of the result's JSON, if it has one."""
    _LOGGER.warning("the result of call %s is not recorded: %s", visible(call), visible(message))
    text = storable(message)[:TEXT_MAX]
    return {MARKER: {"call": call, "reason": reason, "message": text, "type": type_name, "bytes": size}}


def read_marker(call: str, result: object) -> Mapping[str, Any] | None:
    """The members of a call's marker. `None` for a result."""
    if not isinstance(result, Mapping):
        return None
    members = cast("Mapping[str, object]", result)
    found = members.get(MARKER) if len(members) == 1 else None
    if not isinstance(found, Mapping):
        return None
    mark = cast("Mapping[str, Any]", found)
    return mark if mark.get("call") == call else None


def without_content(record: Record, error: Error) -> Record:
    """Ends the call of a record that the server refused for its content: a record under another id, with a marker in place of the
    result, or with the beginning of a failure's message."""
    payload = dict(payload_of(record))
    if payload["type"] == "tool_call_failed":
        text = str(payload["error_message"])
        payload["error_kind"] = str(payload["error_kind"])[:TEXT_MAX]
        payload["error_message"] = cut_text(text, error.message)
    else:
        reason = "too_large" if isinstance(error, TooLarge) else "invalid"
        call, result = str(payload["request_record_id"]), payload.get("result")
        payload["result"] = marker(call, reason, error.message, size=text_bytes(encode(result)))
    return {**record, "record_id": new_id(), "payload": payload}


def cut_text(text: str, why: str) -> str:
    """The beginning of a text that cannot be recorded whole, and the reason."""
    return f"{text[:TEXT_MAX]} [{len(text)} characters, not recorded: {why[:TEXT_MAX]}]"


def text_bytes(text: str) -> int:
    """The number of bytes of a text in a record."""
    return len(text.encode("utf-8", "surrogatepass"))


def storable(text: str) -> str:
    """Escapes lone surrogates, so that every server stores the text."""
    return text.encode("utf-8", "backslashreplace").decode()
