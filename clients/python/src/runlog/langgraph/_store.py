"""LangGraph's checkpoints in records and back: values by LangGraph's serializer, lists item by item."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)  # fmt: skip
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR

from .._api import Object
from .._json import Json, encode
from .._records import digest
from .._wire import Steps
from ..errors import Invalid
from ._threads import FAMILY, Index, Marker, Thread

ITEMS_MAX = 32_768
"""A longer list is stored as one value."""
PAGE_MIN, PAGE_MAX = 10, 1000
"""Records of a page that is read from the end of a thread."""


def dump(serde: SerializerProtocol, value: object, what: str) -> Json:
    """Encodes a value as JSON; `what` names it in errors."""
    try:
        kind, data = serde.dumps_typed(value)
    except Invalid as error:
        raise error.copy(message=f"{what} cannot be stored: {error.message}") from error
    return [kind, base64.b64encode(data).decode()]


def load(serde: SerializerProtocol, piece: Any, what: str) -> Any:
    """Decodes a value."""
    try:
        kind, data = piece
        encoded = base64.b64decode(data)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{what} cannot be read: it is not a pair of a format and base64 text") from error
    try:
        return serde.loads_typed((kind, encoded))
    except Invalid as error:
        raise error.copy(message=f"{what} cannot be read: {error.message}") from error
    except Exception as error:
        # A cipher or a user's serializer raised it.
        raise Invalid(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def load_mapping(serde: SerializerProtocol, piece: Any, what: str) -> dict[str, Any]:
    """Decodes a value that must be a mapping."""
    value = load(serde, piece, what)
    if not isinstance(value, dict):
        raise Invalid(f"{what} is not a mapping")
    return cast("dict[str, Any]", value)


@dataclass(frozen=True, slots=True)
class Target:
    """The checkpoint or thread that a config names."""

    thread_id: str
    ns: str
    checkpoint_id: str | None

    @staticmethod
    def of(config: RunnableConfig) -> Target:
        """Reads `configurable`."""
        configurable: Any = config.get("configurable", {})
        checkpoint_id = configurable.get("checkpoint_id")
        return Target(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or "", checkpoint_id)

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """The config of a checkpoint."""
        configurable = {"thread_id": self.thread_id, "checkpoint_ns": self.ns, "checkpoint_id": checkpoint_id}
        return {"configurable": configurable}


def pieces_of(serde: SerializerProtocol, values: dict[str, Any]) -> tuple[list[Json], Json]:
    """Splits the values of the channels into pieces. Returns the pieces and the layout: name, whether a list, count of
    pieces.

    Checkpoints share pieces: a list that grows by an item adds one new piece."""
    pieces: list[Json] = []
    layout: list[Json] = []
    for name, value in values.items():
        items = _items(value)
        what = f"the channel {name}"
        found = [dump(serde, item, what) for item in items] if items is not None else [dump(serde, value, what)]
        pieces += found
        layout.append([name, items is not None, len(found)])
    return pieces, layout


def _items(value: object) -> list[object] | None:
    """The items of a list that is stored item by item. A subclass of list is stored as one value."""
    items = cast("list[object]", value) if type(value) is list else None
    return items if items is not None and len(items) <= ITEMS_MAX else None


def values_of(serde: SerializerProtocol, pieces: Sequence[Any], layout: Any) -> dict[str, Any]:
    """Joins the pieces to the values of the channels."""
    values: dict[str, Any] = {}
    at = 0
    for name, is_list, count in layout:
        what = f"the channel {name}"
        found = [load(serde, piece, what) for piece in pieces[at : at + count]]
        values[name] = found if is_list else found[0]
        at += count
    return values


def put(
    thread: Thread,
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
) -> Steps[RunnableConfig]:
    """Puts a checkpoint."""
    target, checkpoint_id = Target.of(config), checkpoint["id"]
    rest: dict[str, Any] = dict(checkpoint)
    pieces, layout = pieces_of(serde, rest.pop("channel_values"))
    stored = dump(serde, get_serializable_checkpoint_metadata(config, metadata), "the metadata of a checkpoint")
    entry: Json = {
        "parent": target.checkpoint_id,
        "checkpoint": dump(serde, rest, "a checkpoint"),
        "metadata": stored,
        "channels": layout,
    }
    yield from thread.acquire()
    try:
        writer = yield from thread.ready((target.ns, target.checkpoint_id))
        yield from thread.put(writer, target.ns, checkpoint_id, target.checkpoint_id, stored, pieces, entry)
    finally:
        thread.lock.release()
    return target.config(checkpoint_id)


def put_writes(
    thread: Thread,
    serde: SerializerProtocol,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Steps[None]:
    """Puts writes of a checkpoint. The reader decides which of several writes count."""
    target = Target.of(config)
    found: list[Json] = [
        [WRITES_IDX_MAP.get(channel, at), channel, dump(serde, value, f"a write to the channel {channel}")]
        for at, (channel, value) in enumerate(writes)
    ]
    yield from thread.acquire()
    try:
        writer = yield from thread.ready((target.ns, target.checkpoint_id))
        incarnation = thread.index.incarnation
        content: Json = {"incarnation": incarnation, "task": task_id, "path": task_path, "writes": found}
        entry = ("lg.writes", digest(incarnation, target.ns, target.checkpoint_id))
        yield from thread.append(writer, [writer.records.host(FAMILY, "writes", encode(content).encode(), [entry])])
    finally:
        thread.lock.release()


def get(thread: Thread, serde: SerializerProtocol, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    """The checkpoint that a config names, or the newest one of its namespace."""
    target = Target.of(config)
    yield from thread.settle()
    head = yield from thread.head(full=target.checkpoint_id is None)
    if head is None:
        thread.note_absent((target.ns, target.checkpoint_id))
        return None
    marker = yield from thread.find(head.index, target.ns, target.checkpoint_id)
    found = (yield from read(thread, serde, target.thread_id, head.index, marker, head.loop)) if marker else None
    key = (target.ns, found.checkpoint["id"] if found else None)
    thread.note_read(head, key, latest=target.checkpoint_id is None)
    return found


def read(
    thread: Thread, serde: SerializerProtocol, thread_id: str, index: Index, marker: Marker,
    latest: Object | None = None,
) -> Steps[CheckpointTuple | None]:  # fmt: skip
    """Reads a checkpoint with its writes; `latest` is the run's latest loop checkpoint, if it was read. `None` if
    the checkpoint is incomplete."""
    loop = yield from thread.load(marker, latest)
    if loop is None:
        return None
    writes = yield from thread.writes(index.incarnation, marker.ns, marker.id)
    try:
        return _assembled(serde, Target(thread_id, marker.ns, None), marker, loop, writes)
    except Invalid as error:
        raise error.copy(message=f"checkpoint {marker.id} of thread {thread_id}: {error.message}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Invalid(
            f"checkpoint {marker.id} of thread {thread_id} was not written by a RunlogSaver: {why}"
        ) from error


def _assembled(
    serde: SerializerProtocol, place: Target, marker: Marker, loop: Object, writes: Sequence[Object]
) -> CheckpointTuple:
    entry: Any = loop["state"][FAMILY]["entry"]
    checkpoint = load_mapping(serde, entry["checkpoint"], "it")
    metadata = load_mapping(serde, entry["metadata"], "its metadata")
    if "id" not in checkpoint:
        raise Invalid("it has no id, and is not a checkpoint of LangGraph's")
    checkpoint["channel_values"] = values_of(serde, loop["messages"], entry["channels"])
    return CheckpointTuple(
        config=place.config(marker.id),
        checkpoint=cast("Checkpoint", checkpoint),
        metadata=cast("CheckpointMetadata", metadata),
        parent_config=place.config(entry["parent"]) if entry["parent"] else None,
        pending_writes=pending_writes(serde, writes),
    )


def pending_writes(serde: SerializerProtocol, records: Sequence[Object]) -> list[tuple[str, str, Any]]:
    """The writes that count: the first of a task's writes with one index; the last of errors and interrupts."""
    found: dict[tuple[str, int], tuple[str, str, Any]] = {}
    for record in records:
        for index, channel, value in record["writes"]:
            key = (record["task"], index)
            if index < 0 or key not in found:
                found[key] = (record["path"], channel, value)
    ordered = sorted((path, task, index, channel, value) for (task, index), (path, channel, value) in found.items())
    return [(task, channel, _written(serde, channel, value)) for _, task, _, channel, value in ordered]


def _written(serde: SerializerProtocol, channel: str, value: Any) -> Any:
    try:
        return load(serde, value, f"a write to the channel {channel}")
    except Invalid as error:
        # The error of a task is only shown, and must not keep its thread from being read.
        if channel == ERROR:
            return error.message
        raise


class Listing:
    """The locations of a thread's matching checkpoints, newest first."""

    def __init__(
        self,
        thread: Thread,
        serde: SerializerProtocol,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
    ) -> None:
        self.thread, self.serde, self.filter = thread, serde, filter
        configurable: Any = (config or {}).get("configurable", {})
        self.ns: str | None = configurable.get("checkpoint_ns")
        self.checkpoint_id: str | None = configurable.get("checkpoint_id")
        self.end = Target.of(before).checkpoint_id if before else None
        self._index: Index | None = None
        self._cursor: str | None = None
        self._seen: set[tuple[str, str]] = set()
        self._is_over = False

    def next(self, want: int | None) -> Steps[list[tuple[Index, Marker]]]:
        """Returns the next locations; empty at the end. If the server can start at the thread's end, returns about
        as many as requested."""
        if self._index is None:
            head = yield from self.thread.head()
            self._index, self._is_over = (Index(), True) if head is None else (head.index, False)
        from_end = want is not None and self.ns is not None and self.checkpoint_id is None and self._index.ordered
        from_end = from_end and "order" in (yield from self.thread.api.features())
        while not self._is_over:
            found = yield from self._from_end(want or 1) if from_end else self._all()
            matching = [(self._index, marker) for marker in found if self._matches(marker)]
            if matching:
                return matching
        return []

    def _from_end(self, want: int) -> Steps[list[Marker]]:
        assert self._index is not None and self.ns is not None
        incarnation, limit = self._index.incarnation, min(PAGE_MAX, max(PAGE_MIN, want))
        found, self._cursor = yield from self.thread.newest_markers(
            incarnation, self.ns, self._cursor, limit, self._seen
        )
        self._is_over = self._cursor is None
        return found

    def _all(self) -> Steps[list[Marker]]:
        assert self._index is not None
        incarnation, self._is_over = self._index.incarnation, True
        if self.ns is None:
            found = yield from self.thread.all_markers(incarnation)
        elif self.checkpoint_id is not None:
            only = yield from self.thread.find(self._index, self.ns, self.checkpoint_id)
            found = [only] if only else []
        else:
            found = yield from self.thread.markers_of(incarnation, self.ns)
        return sorted(found, key=lambda marker: marker.id, reverse=True)

    def _matches(self, marker: Marker) -> bool:
        return (
            (self.ns is None or marker.ns == self.ns)
            and (self.checkpoint_id is None or marker.id == self.checkpoint_id)
            and (self.end is None or marker.id < self.end)
            and _matches(self.serde, marker, self.filter)
        )


def _metadata(serde: SerializerProtocol, marker: Marker) -> dict[str, Any]:
    return load_mapping(serde, marker.metadata, f"the metadata of checkpoint {marker.id}")


def _matches(serde: SerializerProtocol, marker: Marker, filter: dict[str, Any] | None) -> bool:
    if not filter:
        return True
    metadata = _metadata(serde, marker)
    try:
        return all(name in metadata and metadata[name] == value for name, value in filter.items())
    except ValueError:
        # An array has no truth.
        return False


def delete(thread: Thread) -> Steps[None]:
    """Deletes a thread."""
    yield from thread.acquire()
    try:
        if (yield from thread.head()) is not None:
            yield from thread.delete(None)
    finally:
        thread.lock.release()


def delete_where(thread: Thread, serde: SerializerProtocol, run_ids: Sequence[str] | None) -> Steps[None]:
    """Deletes the checkpoints of LangGraph runs; without run ids all but the newest one of each namespace."""
    yield from thread.acquire()
    try:
        head = yield from thread.head()
        if head is None:
            return
        markers = yield from thread.all_markers(head.index.incarnation)
        if run_ids is not None:
            keys = [m.key for m in markers if _metadata(serde, m).get("run_id") in run_ids]
        else:
            newest: dict[str, str] = {}
            for marker in markers:
                newest[marker.ns] = max(newest.get(marker.ns, ""), marker.id)
            keys = [m.key for m in markers if newest[m.ns] != m.id]
        if keys:
            yield from thread.delete(keys)
    finally:
        thread.lock.release()


def copy(source: Thread, target: Thread) -> Steps[None]:
    """Copies all checkpoints and writes of a thread, in their order, into another one."""
    head = yield from source.head()
    if head is None:
        return
    yield from target.acquire()
    try:
        # A server also copies deleted checkpoints. They are hidden there, but need not be stored again.
        if head.index.incarnation == 0 and (yield from target.copy_of(source)):
            return
        markers = yield from source.all_markers(head.index.incarnation)
        writer = yield from target.ready(None)
        for marker in markers:
            loop = yield from source.load(marker)
            if loop is None:
                continue
            entry: Any = loop["state"][FAMILY]["entry"]
            pieces = loop["messages"]
            yield from target.put(writer, marker.ns, marker.id, entry["parent"], entry["metadata"], pieces, entry)
            incarnation = target.index.incarnation
            found_by = [("lg.writes", digest(incarnation, marker.ns, marker.id))]
            for content in (yield from source.writes(head.index.incarnation, marker.ns, marker.id)):
                copied = encode({**content, "incarnation": incarnation}).encode()
                yield from target.append(writer, [writer.records.host(FAMILY, "writes", copied, found_by)])
    finally:
        target.lock.release()
