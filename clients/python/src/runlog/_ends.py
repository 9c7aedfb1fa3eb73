"""Decides how the effect of a call ended, and makes the payload that records it. No other module decides that.

returned                            ─▶ tool_call_completed, with the result, or with the marker that says why it is left out
raised `Failed` or one of `failed_on` ─▶ tool_call_failed
raised anything else                ─▶ unknown: no result is recorded, and the call stays pending
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from ._json import Json, encode
from ._marker import cut_text, marker, read_marker, storable, text_bytes
from ._redact import REDACTED, Redaction
from ._texts import NoJson, type_name
from ._values import Unrecordable, to_json
from .errors import Error, Failed, Unknown, Usage

_LOGGER = logging.getLogger("runlog")
_LOST_ANSWERS = (
    ("builtins", "TimeoutError"), ("builtins", "ConnectionResetError"), ("httpx", "ReadTimeout"), ("httpx", "ReadError"),
    ("httpx2", "ReadTimeout"), ("httpx2", "ReadError"), ("requests", "ReadTimeout"), ("urllib3.exceptions", "ReadTimeoutError"),
    ("requests", "ConnectionError"), ("aiohttp", "ServerTimeoutError"), ("aiohttp", "ServerDisconnectedError"),
)  # fmt: skip
"""Exceptions of requests whose answer did not arrive, by module and name."""
_NOT_SENT = frozenset((
    ("builtins", "ConnectionRefusedError"), ("socket", "gaierror"),
    ("httpx", "ConnectError"), ("httpx", "ConnectTimeout"), ("httpx", "PoolTimeout"),
    ("httpx2", "ConnectError"), ("httpx2", "ConnectTimeout"), ("httpx2", "PoolTimeout"),
    ("requests.exceptions", "ConnectTimeout"),
    ("urllib3.exceptions", "NewConnectionError"), ("urllib3.exceptions", "ConnectTimeoutError"),
    ("aiohttp.client_exceptions", "ClientConnectorError"), ("aiohttp.client_exceptions", "ConnectionTimeoutError"),
))  # fmt: skip
"""Exceptions of requests that were not sent, by module and name. They say nothing about an earlier attempt."""
RESULT_BYTES_MAX = 64 << 20
"""Bytes of a result's JSON, or of a failure's message. No server stores more."""

Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]
"""Exceptions: a class, several classes, or a function that recognises them."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The exceptions that determine how an effect ended. Any other exception means that it may have happened.

    Raises `Usage` for a value that recognises no exceptions, and warns of `failed_on` that covers lost answers."""

    failed_on: Kinds = ()
    """The effect did not happen and will not."""
    unknown_on: Kinds = ()
    """The effect may have happened, although the exception is one of `failed_on`."""

    def __post_init__(self) -> None:
        for name, kinds in (("failed_on", self.failed_on), ("unknown_on", self.unknown_on)):
            classes = cast("tuple[object, ...]", kinds if isinstance(kinds, tuple) else (kinds,))
            are_classes = all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in classes)
            if not are_classes and (isinstance(kinds, (tuple, type)) or not callable(kinds)):
                raise Usage(f"{name} is a class of exceptions, a tuple of such classes, or a function, not {kinds!r}")
        self._warn_of_lost_answers()

    def _warn_of_lost_answers(self) -> None:
        failed, unknown = self.failed_on, self.unknown_on
        if not isinstance(failed, (type, tuple)) or not isinstance(unknown, (type, tuple)):
            return
        loaded = [getattr(sys.modules.get(module), name, None) for module, name in _LOST_ANSWERS]
        lost = [kind for kind in loaded if isinstance(kind, type)]
        covered = [kind for kind in lost if issubclass(kind, failed) and not issubclass(kind, unknown)]
        if covered:
            _LOGGER.warning(
                "failed_on covers %s: the request was sent and its answer lost. Its effect may have happened, but the "
                "journal would say that it did not. Name narrower exceptions, or name these in unknown_on",
                ", ".join(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.") for kind in covered),
            )

    def failure(self, error: Exception, *, is_repeat: bool = False) -> Failed | None:
        """The failure to record. `None` if it may have happened, and so if a function raises.

        `is_repeat`: an earlier attempt may have happened. If this attempt sent nothing, that is still unknown."""
        try:
            if isinstance(error, Unknown) or _is_of(self.unknown_on, error):
                return None
            if isinstance(error, Failed):
                return error
            if not _is_of(self.failed_on, error) or (is_repeat and _sent_nothing(error)):
                return None
        except Exception:
            return None
        failed = Failed(type(error).__qualname__, str(error))
        failed.__cause__ = error
        return failed


def _is_of(kinds: Kinds, error: Exception) -> bool:
    return isinstance(error, kinds) if isinstance(kinds, (type, tuple)) else kinds(error)


def _sent_nothing(error: Exception) -> bool:
    return any((kind.__module__, kind.__qualname__) in _NOT_SENT for kind in type(error).__mro__)


class Recorder:
    """Makes the payload that ends a call. Succeeds for any result or exception of its effect."""

    def __init__(self, redaction: Redaction | None, tool: str, request: str) -> None:
        self._redaction, self._tool, self._request = redaction, tool, request

    def end(self, result: Any, failure: Failed | None) -> tuple[dict[str, Json], int]:
        """The payload, and its bytes."""
        if failure is None:
            value, size = self._recordable(result)
            return {"type": "tool_call_completed", "request_record_id": self._request, "result": value}, size
        message = storable(self._redacted_text(str(failure.message)))
        if text_bytes(message) > RESULT_BYTES_MAX:
            # A server that refuses a long body may close the connection before its answer arrives.
            message = cut_text(message, f"the message has more than {RESULT_BYTES_MAX} bytes")
        payload: dict[str, Json] = {
            "type": "tool_call_failed",
            "request_record_id": self._request,
            "error_kind": storable(str(failure.kind)),
            "error_message": message,
        }
        return payload, text_bytes(message)

    def _recordable(self, result: Any) -> tuple[Json, int]:
        """Encodes the result as JSON, or returns the marker with the reason why it is left out; and the bytes of the
        JSON."""
        redaction, request = self._redaction, self._request
        kind = None if isinstance(result, Unrecordable) else type_name(result)
        try:
            value = to_json(result, mark_nan=True)
            size = text_bytes(encode(value))
        except Error as error:
            # Its message may contain a part of the result.
            place = error.place if isinstance(error, NoJson) else ""
            message = error.message if redaction is None else f"a part of the result has no JSON, at ${place}"
            return marker(request, "no_json", self._redacted_text(message), type_name=kind), 0
        if size > RESULT_BYTES_MAX:
            message = f"the result has {size} bytes, more than {RESULT_BYTES_MAX}"
            return marker(request, "too_large", message, type_name=kind, size=size), 0
        if read_marker(request, value) is not None:
            return marker(request, "invalid", "the result is a marker of this call", type_name=kind, size=size), 0
        if redaction is None:
            return value, size
        try:
            value = redaction.json(self._tool, value)
            return value, text_bytes(encode(value))
        except Exception as error:
            message = f"the redaction raised {type_name(error)}"
            return marker(request, "redaction", message, type_name=kind, size=size), 0

    def _redacted_text(self, text: str) -> str:
        try:
            return self._redaction.text(text) if self._redaction else text
        except Exception:
            return REDACTED
