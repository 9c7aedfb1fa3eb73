"""The pieces of a thread's values. A checkpoint has pieces of its base by their hashes, so that an unchanged value costs no
encoding, and keeps its ciphertext.

    value ─▶ plain encoding ─▶ its SHA-256 ─┬─▶ known in this thread and in the base's list: the piece's hash
                                            └─▶ new: encrypted if the serializer encrypts, then a piece

The hashes of plain encodings are only in memory: in the journal they would let a reader guess the values. A process learns
them when it writes a checkpoint, and when it reads one in the format of a `StrictSerializer`. It then also keeps the values, so
that a loop that reads its own checkpoint needs no message from the server.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from .._checkpoint import Kept, MessageList
from .._json import Json, encode
from ..errors import Invalid
from ._copies import Prefix, Template, is_simple, mark_of, template_of
from ._readable import READABLE, encoded, readable
from ._serde import StrictSerializer

ITEMS_MAX = 32_768
"""A longer list is stored as one value."""
KNOWN_MAX = 262_144
"""Pieces that a saver knows by their hashes, about 150 MB."""
VALUES_BYTES_MAX = 64 << 20
"""Bytes of the values that a saver keeps, as they are in the journal."""

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
        self.is_strict = type(self._serde) is StrictSerializer
        """Whether the encoding of a value depends on nothing but the value, so that it can be known."""

    def encode(self, value: object, what: str) -> Plain:
        """Encodes a value; `what` names it in errors."""
        try:
            return self._serde.dumps_typed(value)
        except Invalid as error:
            raise error.copy(message=f"{what} cannot be stored: {error.message}") from error

    def seal(self, plain: Plain) -> Json:
        """Makes a piece: readable, or encrypted if the serializer encrypts."""
        kind, data = plain
        if kind == "msgpack" and self.is_strict and not self.encrypts and (shown := readable(data)) is not None:
            return [READABLE, shown]
        if self.encrypts:
            name, data = self._cipher.encrypt(data)
            kind = f"{kind}+{name}"
        return [kind, base64.b64encode(data).decode()]

    def open(self, piece: Any, what: str) -> Plain:
        """Decrypts a piece."""
        try:
            kind, data = piece
            if kind == READABLE:
                return "msgpack", encoded(data)
            data = base64.b64decode(data)
        except (TypeError, ValueError) as error:
            raise Invalid(f"{what} cannot be read: it is not a pair of a format and base64 text") from error
        except Invalid as error:
            raise error.copy(message=f"{what} cannot be read: {error.message}") from error
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
    marks: list[bytes | None] = field(default_factory=list[bytes | None])
    """The mark of each piece's value. `None` for a value that is not simple."""
    kept: list[Kept] = field(default_factory=list[Kept])
    """The stored pieces. Empty before the checkpoint is stored."""
    prefix: Prefix | None = None
    """The contents of a list of simple values, which most of the next lists begin with."""


@dataclass(slots=True)
class Known:
    """The pieces of a namespace's last checkpoint."""

    channels: dict[str, Channel] = field(default_factory=dict[str, Channel])
    pieces: dict[bytes, Kept] = field(default_factory=dict[bytes, Kept])
    """By the hash of the plain encoding."""
    keys: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The hashes of the plain encodings of simple values, by their marks."""
    loop: str | None = None
    """The loop checkpoint with these pieces. `None` if a value is not kept."""
    entry: Any = None
    """The entry of the thread's index with this checkpoint."""
    values: dict[bytes, Template | Plain] = field(default_factory=dict[bytes, "Template | Plain"])
    """The values, by the digests of their pieces."""
    value_bytes: int = 0
    """The bytes of the values in the journal."""

    @staticmethod
    def of(channels: dict[str, Channel]) -> Known:
        """The pieces of channels."""
        known = Known(channels)
        for channel in channels.values():
            known.pieces.update(zip(channel.keys, channel.kept, strict=True))
            for mark, key in zip(channel.marks, channel.keys, strict=True):
                if mark is not None:
                    known.keys[mark] = key[:_KEY_BYTES]
        return known

    def keep(self, loop: str, entry: Any, values: dict[bytes, Template | Plain]) -> Known:
        """Adds the values, and the loop checkpoint that has them. Values of other checkpoints are left out."""
        digests = {kept.digest for channel in self.channels.values() for kept in channel.kept}
        if digests <= values.keys():
            self.loop, self.entry = loop, entry
            self.values = values if len(values) == len(digests) else {digest: values[digest] for digest in digests}
            self.value_bytes = sum(kept.size for kept in self.pieces.values())
        return self

    def forget_values(self) -> None:
        """Keeps no value any longer."""
        self.loop, self.entry, self.values, self.value_bytes = None, None, {}, 0

    def channel_values(self, form: Form) -> dict[str, Any]:
        """Copies of the values of the channels."""
        found: dict[str, Any] = {}
        for name, channel in self.channels.items():
            items = [_value_of(form, self.values[kept.digest], name) for kept in channel.kept]
            found[name] = items if channel.is_list else items[0]
        return found


def _value_of(form: Form, kept: Template | Plain, name: str) -> Any:
    return kept.make() if isinstance(kept, Template) else form.decode(kept, f"the channel {name}")


def _kept_value(form: Form, plain: Plain, mark: bytes | None) -> Template | Plain:
    """The form in which a value is kept: a template of a simple value, otherwise its encoding."""
    if mark is not None:
        # A message that cannot be built is an error when it is read.
        with suppress(Invalid):
            return template_of(form.decode(plain, "a value")) or plain
    return plain


class KnownPieces:
    """The known pieces of the namespaces that a saver used last, at most `KNOWN_MAX`. Shared by threads of the process."""

    def __init__(self) -> None:
        self._guard, self._count, self._bytes = threading.Lock(), 0, 0
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    def has_values(self, run_id: str, ns: str, serde: SerializerProtocol) -> bool:
        """Whether the values of a namespace's last checkpoint are kept, and `serde` reads their format."""
        return self.get(run_id, ns).loop is not None and Form(serde).is_strict

    def get(self, run_id: str, ns: str) -> Known:
        """The pieces of a namespace's last checkpoint, as far as known."""
        with self._guard:
            return self._known.get((run_id, ns)) or Known()

    def put(self, run_id: str, ns: str, known: Known) -> None:
        """Replaces the pieces of a namespace. Forgets namespaces that were not used for long."""
        with self._guard:
            old = self._known.pop((run_id, ns), None)
            if known.value_bytes > VALUES_BYTES_MAX:
                known.forget_values()
            self._known[run_id, ns] = known
            self._count += len(known.pieces) - (len(old.pieces) if old else 0)
            self._bytes += known.value_bytes - (old.value_bytes if old else 0)
            while self._count > KNOWN_MAX and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                self._count -= len(oldest.pieces)
                self._bytes -= oldest.value_bytes
            for oldest in self._known.values():
                if self._bytes <= VALUES_BYTES_MAX:
                    return
                self._bytes -= oldest.value_bytes
                oldest.forget_values()


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
        self._plain: dict[str, list[Plain | None]] = {}
        """The encodings of the channels that are encoded now. `None` for a value whose piece is known."""
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
        is_list, items = items is not None, [self._values[name]] if items is None else items
        channel, before = Channel(version, is_list), self._known.channels.get(name)
        # Each occurrence of a value has its own ciphertext.
        may_begin = is_list and self._form.is_strict and not self._form.encrypts
        prefix = before.prefix if before is not None and may_begin else None
        same = prefix.begins(items) if prefix is not None else None
        if before is not None and same is not None:
            channel.keys, channel.marks = before.keys.copy(), before.marks.copy()
        begun = len(channel.keys)
        self._plain[name] = [None] * begun
        for each in items[begun:]:
            mark = mark_of(each) if self._form.is_strict else None
            key, plain = self._known.keys.get(mark) if mark is not None else None, None
            if key is None:
                plain = self._form.encode(each, what)
                key, mark = _key_of(plain), mark if mark is not None and is_simple(each) else None
            channel.keys.append(_numbered(key, self._counts) if self._form.encrypts else key)
            channel.marks.append(mark)
            self._plain[name].append(plain)
        if may_begin and None not in channel.marks[begun:]:
            channel.prefix = (same or Prefix()).with_items(items[begun:])
        self._channels[name] = channel

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
            channel = self._channels[name]
            for at, (key, plain) in enumerate(zip(channel.keys, self._plain[name], strict=True)):
                kept = self._known.pieces.get(key)
                if kept is not None and kept.digest in in_base:
                    pieces.append(kept)
                    continue
                pieces.append(self._form.seal(plain or self._encoded(name, at)))
        return pieces

    def _encoded(self, name: str, at: int) -> Plain:
        """The encoding of an item whose known piece the base does not have."""
        value, channel = self._values[name], self._channels[name]
        plain = self._form.encode(value[at] if channel.is_list else value, f"the channel {name}")
        self._plain[name][at] = plain
        return plain

    def known(self, stored: MessageList, entry: Any) -> Known:
        """The known pieces after these were stored as this list, with this entry of the index."""
        at, channels, values = 0, dict[str, Channel](), dict(self._known.values)
        for name, channel in self._channels.items():
            if name in self._plain:
                end = at + len(channel.keys)
                old = map(self._known.pieces.get, channel.keys)
                stored_at = zip(old, stored.hashes[at:end], stored.sizes[at:end], strict=True)
                kept = [each if each and each.digest == own else Kept(own, size) for each, own, size in stored_at]
                channel = replace(channel, kept=kept)
                if self._form.is_strict:
                    for each, plain, mark in zip(kept, self._plain[name], channel.marks, strict=True):
                        if plain is not None and each.digest not in values:
                            values[each.digest] = _kept_value(self._form, plain, mark)
            channels[name] = channel
            at += len(channel.keys)
        known = Known.of(channels)
        return known.keep(stored.checkpoint_id, entry, values) if stored.checkpoint_id else known


def _items(value: object) -> list[object] | None:
    """The items of a list that is stored item by item. A subclass of list is stored as one value."""
    items = cast("list[object]", value) if type(value) is list else None
    return items if items is not None and len(items) <= ITEMS_MAX else None


def _key_of(plain: Plain) -> bytes:
    kind, data = plain
    return hashlib.sha256(kind.encode() + b"\0" + data).digest()


_KEY_BYTES = hashlib.sha256().digest_size


def _numbered(key: bytes, counts: dict[bytes, int]) -> bytes:
    """The key of another occurrence of a value in a checkpoint. Each occurrence has its own ciphertext, so that the
    journal does not show which values are equal."""
    nth = counts[key] = counts.get(key, 0) + 1
    return key if nth == 1 else key + nth.to_bytes(4)


def values_of(
    serde: SerializerProtocol, pieces: Sequence[Any], entry: Any, versions: Mapping[str, Any], loop: str
) -> tuple[dict[str, Any], Known | None]:
    """Joins the pieces to the values of the channels. If the serializer encrypts or is strict, also returns the known pieces."""
    form, values, at = Form(serde), dict[str, Any](), 0
    learns = form.encrypts or form.is_strict
    channels, counts, copies = dict[str, Channel](), dict[bytes, int](), dict[bytes, Template | Plain]()
    for name, is_list, count in entry["channels"]:
        what, some = f"the channel {name}", pieces[at : at + count]
        plain = [form.open(piece, what) for piece in some]
        found = [form.decode(each, what) for each in plain]
        values[name] = found if is_list else found[0]
        if learns:
            keys = list(map(_key_of, plain))
            if form.encrypts:
                keys = [_numbered(key, counts) for key in keys]
            kept = [Kept.of(encode(piece).encode()) for piece in some]
            marks = [mark_of(each) if form.is_strict and is_simple(each) else None for each in found]
            # Computed before the caller gets the values.
            prefix = Prefix().with_items(found) if is_list and form.is_strict and None not in marks else None
            channels[name] = Channel(versions.get(name), is_list, keys, marks, kept, prefix)
            if form.is_strict:
                for each, encoded, value, mark in zip(kept, plain, found, marks, strict=True):
                    copies[each.digest] = encoded if mark is None else template_of(value) or encoded
        at += count
    if not learns:
        return values, None
    known = Known.of(channels)
    return values, known.keep(loop, entry, copies) if form.is_strict else known
