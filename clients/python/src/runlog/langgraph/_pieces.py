"""The pieces of a thread's values. A checkpoint has pieces of its base by their hashes, so that an unchanged value costs no
encoding, and keeps its ciphertext.

    value ─▶ plain encoding ─▶ its SHA-256 ─┬─▶ known in this thread and in the base's list: the piece's hash
                                            └─▶ new: encrypted if the serializer encrypts, then a piece

The hashes of plain encodings are only in memory: in the journal they would let a reader guess the values. A process learns
them when it writes a checkpoint or, if the serializer encrypts, when it reads one.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from .._checkpoint import Kept, MessageList
from .._json import Json, encode
from ..errors import Invalid

ITEMS_MAX = 32_768
"""A longer list is stored as one value."""
KNOWN_MAX = 262_144
"""Pieces that a saver knows by their hashes, about 100 MB."""

Plain = tuple[str, bytes]
"""A value as the serializer encodes it, not encrypted."""


def dump(serde: SerializerProtocol, value: object, what: str) -> Json:
    """Encodes a value as JSON; `what` names it in errors."""
    form = Form(serde)
    return form.seal(form.encode(value, what))


def load(serde: SerializerProtocol, piece: Any, what: str) -> Any:
    """Decodes a value."""
    form = Form(serde)
    return form.decode(form.open(piece, what), what)


class Form:
    """A serializer, with its cipher apart."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.encrypts = isinstance(serde, EncryptedSerializer) and type(serde) is EncryptedSerializer
        self._cipher: Any = serde.cipher if isinstance(serde, EncryptedSerializer) and self.encrypts else None
        self._serde = serde.serde if isinstance(serde, EncryptedSerializer) and self.encrypts else serde

    def encode(self, value: object, what: str) -> Plain:
        """Encodes a value; `what` names it in errors."""
        try:
            return self._serde.dumps_typed(value)
        except Invalid as error:
            raise error.copy(message=f"{what} cannot be stored: {error.message}") from error

    def seal(self, plain: Plain) -> Json:
        """Makes a piece, encrypted if the serializer encrypts."""
        kind, data = plain
        if self.encrypts:
            name, data = self._cipher.encrypt(data)
            kind = f"{kind}+{name}"
        return [kind, base64.b64encode(data).decode()]

    def open(self, piece: Any, what: str) -> Plain:
        """Decrypts a piece."""
        try:
            kind, data = piece
            data = base64.b64decode(data)
        except (TypeError, ValueError) as error:
            raise Invalid(f"{what} cannot be read: it is not a pair of a format and base64 text") from error
        if not self.encrypts or "+" not in kind:
            return kind, data
        kind, name = kind.split("+", 1)
        try:
            return kind, self._cipher.decrypt(name, data)
        except Exception as error:
            raise _unreadable(what, error) from error

    def decode(self, plain: Plain, what: str) -> Any:
        """Decodes a value."""
        try:
            return self._serde.loads_typed(plain)
        except Invalid as error:
            raise error.copy(message=f"{what} cannot be read: {error.message}") from error
        except Exception as error:
            # A user's serializer raised it.
            raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> Invalid:
    return Invalid(f"{what} cannot be read: {type(error).__name__}: {error}")


@dataclass(slots=True)
class Channel:
    """The pieces of a channel's value."""

    version: object
    is_list: bool
    keys: list[bytes] = field(default_factory=list[bytes])
    """The hash of each piece's plain encoding."""
    kept: list[Kept] = field(default_factory=list[Kept])
    """The stored pieces. Empty before the checkpoint is stored."""


@dataclass(slots=True)
class Known:
    """The pieces of a namespace's last checkpoint."""

    channels: dict[str, Channel] = field(default_factory=dict[str, Channel])
    pieces: dict[bytes, Kept] = field(default_factory=dict[bytes, Kept])
    """By the hash of the plain encoding."""

    @staticmethod
    def of(channels: dict[str, Channel]) -> Known:
        """The pieces of channels."""
        pieces: dict[bytes, Kept] = {}
        for channel in channels.values():
            pieces.update(zip(channel.keys, channel.kept, strict=True))
        return Known(channels, pieces)


class KnownPieces:
    """The known pieces of the namespaces that a saver used last, at most `KNOWN_MAX`. Shared by threads of the process."""

    def __init__(self) -> None:
        self._guard, self._count = threading.Lock(), 0
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    def get(self, run_id: str, ns: str) -> Known:
        """The pieces of a namespace's last checkpoint, as far as known."""
        with self._guard:
            return self._known.get((run_id, ns)) or Known()

    def put(self, run_id: str, ns: str, known: Known) -> None:
        """Replaces the pieces of a namespace. Forgets namespaces that were not used for long."""
        with self._guard:
            old = self._known.pop((run_id, ns), None)
            self._known[run_id, ns] = known
            self._count += len(known.pieces) - (len(old.pieces) if old else 0)
            while self._count > KNOWN_MAX and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                self._count -= len(oldest.pieces)


class Draft:
    """The values of a checkpoint that is about to be stored: encoded, and not encrypted yet."""

    def __init__(
        self,
        serde: SerializerProtocol,
        values: Mapping[str, Any],
        versions: Mapping[str, Any],
        new_versions: Collection[str],
        known: Known,
    ) -> None:
        """Encodes the channels that `new_versions` names or that have another version than in `known`."""
        self._form, self._known, self._values, self._counts = Form(serde), known, values, dict[bytes, int]()
        self._plain: dict[str, list[Plain]] = {}
        self._channels: dict[str, Channel] = {}
        for name in values:
            before = known.channels.get(name)
            version = versions.get(name)
            if before is None or version is None or before.version != version or name in new_versions:
                self._encode(name, version)
            else:
                self._channels[name] = before

    def _encode(self, name: str, version: object) -> None:
        items, what = _items(self._values[name]), f"the channel {name}"
        plain = [self._form.encode(each, what) for each in ([self._values[name]] if items is None else items)]
        self._plain[name] = plain
        self._channels[name] = Channel(version, items is not None, [self._key(each) for each in plain])

    def _key(self, plain: Plain) -> bytes:
        key = _key_of(plain)
        return _numbered(key, self._counts) if self._form.encrypts else key

    def layout(self) -> Json:
        """Name, whether a list, and count of pieces, channel by channel."""
        return [[name, channel.is_list, len(channel.keys)] for name, channel in self._channels.items()]

    def pieces(self, base: MessageList) -> list[Json | Kept]:
        """The pieces, in the order of the layout; those in the base's list without content."""
        in_base = set(base.hashes)
        pieces: list[Json | Kept] = []
        for name, channel in list(self._channels.items()):
            if name not in self._plain:
                if all(kept.digest in in_base for kept in channel.kept):
                    pieces += channel.kept
                    continue
                self._encode(name, channel.version)
            for key, plain in zip(self._channels[name].keys, self._plain[name], strict=True):
                kept = self._known.pieces.get(key)
                pieces.append(kept if kept is not None and kept.digest in in_base else self._form.seal(plain))
        return pieces

    def known(self, stored: MessageList) -> Known:
        """The known pieces after these were stored as this list."""
        at, channels = 0, dict[str, Channel]()
        for name, channel in self._channels.items():
            if name in self._plain:
                end = at + len(channel.keys)
                kept = list(map(Kept, stored.hashes[at:end], stored.sizes[at:end]))
                channel = Channel(channel.version, channel.is_list, channel.keys, kept)
            channels[name] = channel
            at += len(channel.keys)
        return Known.of(channels)


def _items(value: object) -> list[object] | None:
    """The items of a list that is stored item by item. A subclass of list is stored as one value."""
    items = cast("list[object]", value) if type(value) is list else None
    return items if items is not None and len(items) <= ITEMS_MAX else None


def _key_of(plain: Plain) -> bytes:
    kind, data = plain
    return hashlib.sha256(kind.encode() + b"\0" + data).digest()


def _numbered(key: bytes, counts: dict[bytes, int]) -> bytes:
    """The key of another occurrence of a value in a checkpoint. Each occurrence has its own ciphertext, so that the
    journal does not show which values are equal."""
    nth = counts[key] = counts.get(key, 0) + 1
    return key if nth == 1 else key + nth.to_bytes(4)


def values_of(
    serde: SerializerProtocol, pieces: Sequence[Any], layout: Any, versions: Mapping[str, Any]
) -> tuple[dict[str, Any], Known | None]:
    """Joins the pieces to the values of the channels. If the serializer encrypts, also returns the known pieces."""
    form, values, at = Form(serde), dict[str, Any](), 0
    channels, counts = dict[str, Channel](), dict[bytes, int]()
    for name, is_list, count in layout:
        what, some = f"the channel {name}", pieces[at : at + count]
        plain = [form.open(piece, what) for piece in some]
        found = [form.decode(each, what) for each in plain]
        values[name] = found if is_list else found[0]
        if form.encrypts:
            keys = [_numbered(_key_of(each), counts) for each in plain]
            kept = [Kept.of(encode(piece).encode()) for piece in some]
            channels[name] = Channel(versions.get(name), is_list, keys, kept)
        at += count
    return values, Known.of(channels) if form.encrypts else None
