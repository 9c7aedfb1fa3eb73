"""LangGraph's checkpoints in records and back: values by LangGraph's serializer, lists item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)  # fmt: skip
from langgraph.checkpoint.base.id import UUID
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR

from .._api import Object
from .._checkpoint import MessageList
from .._json import Json
from .._wire import Steps
from .._writer import Writer
from ..errors import Action, Conflict, Fenced, Invalid
from . import _metadata
from ._index import FAMILY, ForeignThread, Head, Index, Marker, RemovedContent
from ._pieces import Draft, Form, Known, dump, load, values_of
from ._reader import PAGE_MIN
from ._threads import Thread

PAGE_MAX = 1000
"""Records of the largest page that is read from the end of a thread."""

UUID_TICKS = 10_000_000
"""Ticks of a second in a time-based id."""


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


def put(
    thread: Thread,
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Puts a checkpoint. Raises `Conflict` for an id below its parent's: readers that compare ids would consider it the
    older checkpoint."""
    target, checkpoint_id = Target.of(config), checkpoint["id"]
    rest: dict[str, Any] = dict(checkpoint)
    values, known = rest.pop("channel_values"), thread.pieces.get(thread.run_id, target.ns)
    draft = Draft(serde, values, checkpoint["channel_versions"], new_versions, known)
    complete = get_serializable_checkpoint_metadata(config, metadata)
    stored = dump(serde, complete, "the metadata of a checkpoint")
    entries = _metadata.entries(thread.prefix, serde, complete)
    entry: Json = {
        "parent": target.checkpoint_id,
        "checkpoint": dump(serde, rest, "a checkpoint"),
        "metadata": stored,
        "channels": draft.layout(),
    }

    def once(writer: Writer) -> Steps[MessageList]:
        pieces = draft.pieces(thread.base(target.ns))
        return thread.put(writer, target.ns, checkpoint_id, target.checkpoint_id, stored, pieces, entry, entries)

    yield from thread.acquire()
    try:
        refused = thread.refused.get((target.ns, target.checkpoint_id))
        if refused is None and target.checkpoint_id is not None and checkpoint_id < target.checkpoint_id:
            refused = _clock_conflict(target, checkpoint_id, target.checkpoint_id)
        if refused is not None:
            # The loop may still put writes of this checkpoint, and its successor.
            raise thread.refuse((target.ns, checkpoint_id), refused).copy()
        try:
            # A change of the state beside a loop forks the thread on purpose. Parallel subgraphs may share a namespace.
            if not target.ns and metadata.get("source") in ("input", "loop"):
                following = yield from thread.continue_loop((target.ns, target.checkpoint_id), checkpoint_id, once)
            else:
                following = yield from thread.write((target.ns, target.checkpoint_id), once)
        except Fenced as error:
            thread.refuse((target.ns, checkpoint_id), error)
            raise
        thread.pieces.put(thread.run_id, target.ns, draft.known(following, entry))
    finally:
        thread.lock.release()
    return target.config(checkpoint_id)


def _clock_conflict(target: Target, checkpoint_id: str, parent: str) -> Conflict:
    """Makes the error for a checkpoint whose id is below its parent's because this machine's clock is slow."""
    by = ""
    with suppress(ValueError):
        by = f" by at least {(UUID(hex=parent).time - UUID(hex=checkpoint_id).time) / UUID_TICKS:.3f} s"
    message = (
        f"checkpoint {checkpoint_id} of thread {target.thread_id} was not stored: its id is below {parent}, its parent's. The "
        f"clock of this machine is behind the clock of the machine that wrote the parent{by}: set the clocks, then invoke the "
        "graph again"
    )
    return Conflict(message, action=Action.RETRY)


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
    content: Mapping[str, Json] = {"task": task_id, "path": task_path, "writes": found}

    def once(writer: Writer) -> Steps[None]:
        return thread.put_writes(writer, target.ns, target.checkpoint_id, content)

    yield from thread.acquire()
    try:
        # Checked under the lock: the checkpoint may be refused while its writes wait for the lock. They must not claim the
        # thread for a loop that has ended.
        if (refused := thread.refused.get((target.ns, target.checkpoint_id))) is not None:
            raise refused.copy()
        yield from thread.write((target.ns, target.checkpoint_id), once, for_writes=True)
    finally:
        thread.lock.release()


def get(thread: Thread, serde: SerializerProtocol, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    """The checkpoint that a config names, or the newest checkpoint of its namespace."""
    target = Target.of(config)
    yield from thread.settle()
    has_values = thread.pieces.has_values(thread.run_id, target.ns, serde)
    head = yield from thread.head(full=target.checkpoint_id is None and not has_values)
    if head is None:
        thread.note_absent((target.ns, target.checkpoint_id))
        return None
    marker, found = (yield from thread.find(head.index, target.ns, target.checkpoint_id)), None
    if marker is not None:
        try:
            found = yield from read(thread, serde, target.thread_id, head.index, marker, head)
        except RemovedContent as error:
            if target.checkpoint_id is not None:
                raise
            thread.warn_of_removed(error)
    key = (target.ns, found.checkpoint["id"] if found else None)
    thread.note_read(head, key, latest=target.checkpoint_id is None)
    return found


def read(
    thread: Thread, serde: SerializerProtocol, thread_id: str, index: Index, marker: Marker,
    head: Head | None = None,
) -> Steps[CheckpointTuple | None]:  # fmt: skip
    """Reads a checkpoint with its writes; `head` is the run's head, if it was just read. `None` if the checkpoint is
    incomplete."""
    known = thread.pieces.get(thread.run_id, marker.ns)
    # Only the run's latest checkpoint: the server has just said that it can be read.
    is_known = head is not None and known.loop == head.loop_id == marker.loop and Form(serde).is_strict
    loop = None if is_known else (yield from thread.load(marker, head and head.loop))
    if loop is None and not is_known:
        return None
    writes: list[Object] = []
    if head is None or not thread.has_no_writes(head, marker.key):
        writes = yield from thread.writes(index.incarnation, marker.ns, marker.id)
    try:
        place = Target(thread_id, marker.ns, None)
        if loop is None:
            values = known.channel_values(Form(serde))
            return _checkpoint_of(serde, place, marker, known.entry, values, writes)
        found, learned = _assembled(serde, place, marker, loop, writes)
    except Invalid as error:
        raise error.copy(message=f"checkpoint {marker.id} of thread {thread_id}: {error.message}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Invalid(
            f"checkpoint {marker.id} of thread {thread_id} was not written by a RunlogSaver: {why}"
        ) from error
    newest = index.heads.get(marker.ns)
    if learned is not None and newest is not None and newest[2] == marker.loop:
        thread.pieces.put(thread.run_id, marker.ns, learned)
    return found


def read_listed(
    thread: Thread, serde: SerializerProtocol, thread_id: str, index: Index, marker: Marker
) -> Steps[CheckpointTuple | None]:
    """As `read`, and `None` with a warning if the checkpoint's content was removed."""
    try:
        return (yield from read(thread, serde, thread_id, index, marker))
    except RemovedContent as error:
        thread.warn_of_removed(error)
        return None


def _assembled(
    serde: SerializerProtocol, place: Target, marker: Marker, loop: Object, writes: Sequence[Object]
) -> tuple[CheckpointTuple, Known | None]:
    entry: Any = loop["state"][FAMILY]["entry"]
    checkpoint = load_mapping(serde, entry["checkpoint"], "it")
    versions: dict[str, Any] = checkpoint.get("channel_versions") or {}
    values, learned = values_of(serde, loop["messages"], entry, versions, loop["checkpoint_id"])
    return _checkpoint_of(serde, place, marker, entry, values, writes), learned


def _checkpoint_of(
    serde: SerializerProtocol,
    place: Target,
    marker: Marker,
    entry: Any,
    values: dict[str, Any],
    writes: Sequence[Object],
) -> CheckpointTuple:
    """Builds a checkpoint from its entry in the index and the values of its channels."""
    checkpoint = load_mapping(serde, entry["checkpoint"], "it")
    metadata = load_mapping(serde, entry["metadata"], "its metadata")
    if "id" not in checkpoint:
        raise Invalid("it has no id, and is not a checkpoint of LangGraph's")
    checkpoint["channel_values"] = values
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
        self._names_thread = "thread_id" in configurable
        self.ns: str | None = configurable.get("checkpoint_ns")
        self.checkpoint_id: str | None = configurable.get("checkpoint_id")
        self.end = Target.of(before).checkpoint_id if before else None
        self._index: Index | None = None
        self._cursor: str | None = None
        self._seen: set[tuple[str, str]] = set()
        self._is_over = False

    def next(self, want: int | None) -> Steps[list[tuple[Index, Marker]]]:
        """Returns the next locations, about as many as requested; empty at the end."""
        if self._index is None:
            try:
                head = yield from self.thread.head()
            except ForeignThread:
                if self._names_thread:
                    raise
                head = None
            self._index, self._is_over = (Index(), True) if head is None else (head.index, False)
        while not self._is_over:
            found = yield from self._page(PAGE_MAX if want is None else min(PAGE_MAX, max(PAGE_MIN, want)))
            matching = [(self._index, marker) for marker in found if self._matches(marker)]
            if matching:
                return matching
        return []

    def _page(self, limit: int) -> Steps[list[Marker]]:
        assert self._index is not None
        if self.ns is not None and self.checkpoint_id is not None:
            self._is_over = True
            only = yield from self.thread.find(self._index, self.ns, self.checkpoint_id)
            return [only] if only else []
        found, self._cursor = yield from self.thread.newest_markers(
            self._index.incarnation, self.ns, self._cursor, limit, self._seen
        )
        self._is_over = self._cursor is None
        return found

    def _matches(self, marker: Marker) -> bool:
        return (
            (self.ns is None or marker.ns == self.ns)
            and (self.checkpoint_id is None or marker.id == self.checkpoint_id)
            and (self.end is None or marker.id < self.end)
            and _matches(self.serde, marker, self.filter)
        )


def _metadata_of(serde: SerializerProtocol, marker: Marker) -> dict[str, Any]:
    return load_mapping(serde, marker.metadata, f"the metadata of checkpoint {marker.id}")


def _matches(serde: SerializerProtocol, marker: Marker, filter: dict[str, Any] | None) -> bool:
    if not filter:
        return True
    metadata = _metadata_of(serde, marker)
    try:
        return all(name in metadata and metadata[name] == value for name, value in filter.items())
    except ValueError:
        # An array has no truth.
        return False


def delete(thread: Thread) -> Steps[None]:
    """Deletes a thread."""
    yield from thread.acquire()
    try:
        head = yield from thread.head(lost=True)
        if head is not None:
            thread.notice_claim(head)
            yield from thread.delete(None)
    finally:
        thread.lock.release()


def delete_where(thread: Thread, serde: SerializerProtocol, run_ids: Sequence[str] | None) -> Steps[None]:
    """Deletes the checkpoints of LangGraph runs; without run ids all but the newest checkpoint of each namespace."""
    yield from thread.acquire()
    try:
        head = yield from thread.head()
        if head is None:
            return
        thread.notice_claim(head)
        markers = yield from thread.all_markers(head.index.incarnation)
        if run_ids is not None:
            keys = [m.key for m in markers if _metadata_of(serde, m).get("run_id") in run_ids]
        else:
            newest = {marker.ns: marker.id for marker in markers}
            newest |= {ns: checkpoint_id for ns, (checkpoint_id, _, _) in head.index.heads.items()}
            keys = [m.key for m in markers if newest[m.ns] != m.id]
        if keys:
            yield from thread.delete(keys)
    finally:
        thread.lock.release()


def copy(source: Thread, target: Thread) -> Steps[None]:
    """Copies all checkpoints and writes of a thread, in their order, into another thread."""
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
            # The metadata is not decoded: the saver may not allow its types.
            entries = [_metadata.any_metadata(target.prefix)]
            yield from target.put(
                writer, marker.ns, marker.id, entry["parent"], entry["metadata"], pieces, entry, entries
            )
            for content in (yield from source.writes(head.index.incarnation, marker.ns, marker.id)):
                yield from target.put_writes(writer, marker.ns, marker.id, content)
    finally:
        target.lock.release()
