"""A LangGraph thread as a run: one writer, and an index that every checkpoint of the run carries.

    put     ─▶ one request: a numbered `checkpoint` record (found by its correlation entries), then a loop checkpoint that
               covers exactly that number, with the values as its messages and the index as its state
    read    ─▶ the run's latest loop checkpoint has the index: the newest checkpoint of each namespace, by that number
    delete  ─▶ a `tombstone` record, then a loop checkpoint with the new index; a deleted thread starts another incarnation

A checkpoint record whose loop checkpoint never arrived is not complete, and not shown.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .. import _checkpoint
from .._api import Api, Object, query, run_path
from .._checkpoint import MessageList
from .._json import Json, encode
from .._records import Record, bytes_of, digest, new_id
from .._session import Releasable
from .._wire import Acquire, Steps
from .._writer import Writer
from ..errors import ClaimLost, Conflict, Fenced, MissingContent, TooLarge, Unavailable

FAMILY = "langgraph"
HEADS_MAX = 32
"""Namespaces whose newest checkpoint the index names. Others are found by a scan of their records."""
NAMESPACES_MAX = 64
SEEN_MAX = 1024
TOMBSTONE_KEYS_MAX = 31
"""A record has up to 64 correlation entries that are found: two for each key."""
DELETE_MAX = 1000

Key = tuple[str, str | None]
"""Namespace and checkpoint id; no id before the first checkpoint."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The location of a checkpoint."""

    ns: str
    id: str
    parent: str | None
    covers: int
    loop: str
    """The id of the loop checkpoint."""
    metadata: Json = None

    @property
    def key(self) -> tuple[str, str]:
        """Its key within the thread."""
        return self.ns, self.id


@dataclass(frozen=True, slots=True)
class Index:
    """The current content of a thread."""

    incarnation: int = 0
    heads: dict[str, tuple[str, int, str]] = field(default_factory=dict[str, tuple[str, int, str]])
    """The newest checkpoint of a namespace: its id, the number that it covers, its loop checkpoint. In LRU order."""
    more: bool = False
    """Whether `heads` lacks namespaces."""
    ordered: bool = True
    """Whether each namespace's checkpoints were put in the order of their ids, so that the newest are found from the end."""

    @staticmethod
    def of(checkpoint: Object | None) -> Index:
        """Reads the index from the state of the run's latest loop checkpoint."""
        state: Any = checkpoint and checkpoint.get("state")
        found: Any = cast("dict[str, Any]", state).get(FAMILY) if isinstance(state, dict) else None
        if found is None:
            return Index(more=checkpoint is not None, ordered=checkpoint is None)
        stored: dict[str, list[Any]] = found["heads"]
        heads = {ns: (str(head[0]), int(head[1]), str(head[2])) for ns, head in stored.items()}
        return Index(found["incarnation"], heads, found["more"], found.get("ordered", False))

    def state(self, entry: Json) -> Json:
        """The state of a loop checkpoint."""
        heads: Json = {ns: list(head) for ns, head in self.heads.items()}
        kept: dict[str, Json] = {"incarnation": self.incarnation, "heads": heads, "more": self.more}
        return {FAMILY: {**kept, "ordered": self.ordered, "entry": entry}}

    def with_head(self, marker: Marker) -> Index:
        """Returns a copy with another checkpoint."""
        heads, more = dict(self.heads), self.more
        newest = heads.pop(marker.ns, None)
        ordered = self.ordered and (not more if newest is None else newest[0] <= marker.id)
        if newest is None or newest[0] <= marker.id:
            newest = (marker.id, marker.covers, marker.loop)
        heads[marker.ns] = newest
        while len(heads) > HEADS_MAX:
            del heads[next(ns for ns in heads if ns)]
            more = True
        return replace(self, heads=heads, more=more, ordered=ordered)


@dataclass(frozen=True, slots=True)
class Head:
    """The current state of a run."""

    writer_id: str
    epoch: int
    next_checkpoint_seq: int
    index: Index
    status: str
    """`open`, or how the run ended."""
    loop: Object | None = None
    """The run's latest loop checkpoint with its messages, if requested."""

    @property
    def version(self) -> tuple[int, int]:
        """A version that changes with every claim and every checkpoint."""
        return self.epoch, self.next_checkpoint_seq


class Thread:
    """A saver object's state of one thread, with its claim."""

    def __init__(self, api: Api, run_id: str, lock: Releasable, *, owned: bool = False) -> None:
        self.api, self.run_id, self.lock = api, run_id, lock
        self.owned = owned
        """Whether the thread is claimed only once: a lost thread is not claimed again."""
        self.writer: Writer | None = None
        self._claiming: Writer | None = None
        """A claim whose answer was lost; the next try sends the same claim."""
        self.index = Index()
        self.lists: OrderedDict[str, MessageList] = OrderedDict()
        self._seen: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        """The run's epoch and its next checkpoint's number when a checkpoint was last read."""
        self._written: OrderedDict[str, str] = OrderedDict()
        """The last checkpoint of each namespace that this object wrote under its claim."""
        self._stale: set[Key] = set()
        """Checkpoints that were written under a lost claim: a loop that continues from them is superseded."""

    def acquire(self) -> Steps[None]:
        """Waits for earlier operations of this object on the thread, in their order. The caller releases the lock."""
        if not (yield Acquire(self.lock, self.api.config.deadline)):
            raise Unavailable(f"timed out waiting for an earlier operation on run {self.run_id}", run_id=self.run_id)

    # Reading

    def head(self, *, full: bool = False) -> Steps[Head | None]:
        """Reads the run and its index from one state of the log; with `full`, also the messages of the latest loop
        checkpoint."""
        path = f"{run_path(self.run_id)}/recovery{query(full=full, content=True, limit=1, consistency='latest')}"
        found: Object | None = yield from self.api.find(path)
        if found is None:
            return None
        checkpoint: Object | None = found["checkpoint"]
        self._check_latest(checkpoint, found["next_checkpoint_seq"])
        loop = checkpoint if full else None
        index = Index.of(checkpoint)
        return Head(found["writer_id"], found["epoch"], found["next_checkpoint_seq"], index, found["status"], loop)

    def _check_latest(self, checkpoint: Object | None, next_checkpoint_seq: int) -> None:
        """Raises if the answer is an older checkpoint because the latest one's content is lost."""
        if (checkpoint["checkpoint_seq"] if checkpoint else 0) < next_checkpoint_seq - 1:
            raise MissingContent(f"the latest checkpoint of run {self.run_id} cannot be read", run_id=self.run_id)

    def note_read(self, head: Head, key: Key, *, latest: bool) -> None:
        """Allows a loop to continue from this checkpoint, unless another writer claims the run later."""
        writer = self.writer
        if writer is not None and writer.over is None and head.epoch != writer.epoch:
            if head.epoch < writer.epoch:
                return  # an answer older than the claim
            self._supersede(writer)
        if latest:
            self._stale.discard(key)
        if key not in self._stale:
            self._note_seen(key, head.version)

    def note_absent(self, key: Key) -> None:
        """Allows a loop to begin the thread, unless another writer begins it first."""
        self._note_seen(key, (0, 1))

    def _note_seen(self, key: Key, version: tuple[int, int]) -> None:
        self._seen[key] = version
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)

    def _supersede(self, writer: Writer) -> None:
        writer.lose(self._fenced())
        self._stale = set(self._written.items())
        self._written.clear()

    def _fenced(self) -> Fenced:
        how = "claim" if self.owned else "read"
        message = f"another writer took over run {self.run_id}; {how} the thread again to continue it"
        return Fenced(message, run_id=self.run_id)

    def markers(self, incarnation: int, correlation: tuple[str, str]) -> Steps[list[Marker]]:
        """Reads the checkpoints with a correlation entry, without deleted ones, in the order of their writes."""
        lines = yield from self.api.records(self.run_id, correlation)
        found = list(self._markers_in(reversed(lines), incarnation, set()))
        return found[::-1]

    def newest_markers(
        self, incarnation: int, ns: str, cursor: str | None, limit: int, seen: set[tuple[str, str]]
    ) -> Steps[tuple[list[Marker], str | None]]:
        """Reads a page of a namespace's checkpoints without deleted ones, last write first, and the next page's
        cursor. `seen` has the keys of earlier pages. Requires the server feature `order`."""
        entry = ("lg.namespace", digest(incarnation, ns))
        lines, following = yield from self.api.records_page(self.run_id, entry, cursor, limit, "desc")
        return [marker for marker in self._markers_in(lines, incarnation, seen) if marker.ns == ns], following

    def _markers_in(
        self, newest_first: Iterable[Object], incarnation: int, seen: set[tuple[str, str]]
    ) -> Iterator[Marker]:
        """The checkpoints in records, which come newest first. Only a key's newest record counts."""
        for line in newest_first:
            kind, content = self._content(line)
            if content["incarnation"] != incarnation:
                continue
            if kind == "checkpoint":
                marker = Marker(
                    content["ns"], content["id"], content["parent"], content["covers"], content["loop"],
                    content["metadata"],
                )  # fmt: skip
                if marker.key not in seen:
                    seen.add(marker.key)
                    yield marker
            elif kind == "tombstone":
                seen.update((ns, checkpoint_id) for ns, checkpoint_id in content["keys"])

    def all_markers(self, incarnation: int) -> Steps[list[Marker]]:
        """All checkpoints of the thread."""
        return self.markers(incarnation, ("lg.thread", str(incarnation)))

    def markers_of(self, incarnation: int, ns: str) -> Steps[list[Marker]]:
        """All checkpoints of a namespace."""
        return self.markers(incarnation, ("lg.namespace", digest(incarnation, ns)))

    def find(self, index: Index, ns: str, checkpoint_id: str | None) -> Steps[Marker | None]:
        """Finds a checkpoint by its id, or the newest one of a namespace."""
        if checkpoint_id is not None:
            entry = ("lg.checkpoint", digest(index.incarnation, ns, checkpoint_id))
            found = yield from self.markers(index.incarnation, entry)
            return next((marker for marker in found if marker.key == (ns, checkpoint_id)), None)
        head = index.heads.get(ns)
        if head is not None:
            return Marker(ns, head[0], None, head[1], head[2])
        if not index.more:
            return None
        found = yield from self.markers_of(index.incarnation, ns)
        return max((m for m in found if m.ns == ns), key=lambda marker: marker.id, default=None)

    def load(self, marker: Marker, latest: Object | None = None) -> Steps[Object | None]:
        """Reads the loop checkpoint of a checkpoint; uses `latest` if it has the right id. `None` if it never
        arrived."""
        if latest is not None and latest["checkpoint_id"] == marker.loop:
            return latest
        if "checkpoints" in (yield from self.api.features()):
            found = yield from self.api.checkpoint_by_id(self.run_id, marker.loop)
        else:
            found = yield from self.api.checkpoint(self.run_id, marker.covers)
        if found is not None and found["checkpoint_id"] == marker.loop:
            return found
        if (yield from self.api.landed(self.run_id, marker.loop)) is None:
            return None
        message = f"checkpoint {marker.id} of run {self.run_id} cannot be read: its content is lost or was removed"
        raise MissingContent(message, run_id=self.run_id, record_id=marker.loop)

    def writes(self, incarnation: int, ns: str, checkpoint_id: str) -> Steps[list[Object]]:
        """Reads the writes of a checkpoint, record by record, in their order."""
        entry = ("lg.writes", digest(incarnation, ns, checkpoint_id))
        lines = yield from self.api.records(self.run_id, entry)
        return [self._content(line)[1] for line in lines]

    def _content(self, line: Object) -> tuple[str, Object]:
        record: Object | None = line.get("record")
        if record is None:
            message = (
                f"record {line['record_id']} of run {self.run_id} cannot be read: its content is lost or was removed"
            )
            raise MissingContent(message, run_id=self.run_id, record_id=line["record_id"])
        payload = record["payload"]
        return payload["payload_type"], json.loads(bytes_of(payload["bytes"]))

    def settle(self) -> Steps[None]:
        """Resends records and claims without an answer, so that reads see them. Notes a lost claim."""
        if self.writer is None or self.writer.over is not None or self.writer.unacknowledged is None:
            return
        yield from self.acquire()
        try:
            with suppress(Fenced):
                yield from self._settle(self.writer)
        finally:
            self.lock.release()

    # Writing

    def ready(self, parent: Key | None) -> Steps[Writer]:
        """Returns this object's claim. Claims now if it has none, or if its claim was lost and `parent` was read since.

        `None` as parent takes the run over in any case. Raises `Fenced` for a loop that is superseded. The lock is held."""
        writer = self.writer
        if writer is not None and writer.over is None:
            yield from self._settle(writer)
            if writer.numbers_unsure:
                yield from self._sync(writer)
            return writer
        if writer is not None and self.owned:
            raise self._fenced()
        takes_base64 = "base64" in (yield from self.api.features())
        head = yield from self.head()
        if head is not None and head.status != "open":
            raise Writer(self.api, self.run_id).after_end(head.status, "its thread can be read, and not written")
        claiming = self._claiming
        if head is None or claiming is None or not claiming.adopt({"writer_id": head.writer_id, "epoch": head.epoch}):
            if parent is not None and head is not None:
                self._check_read(parent, head, superseded=writer is not None)
            claiming = self._claiming = claiming or Writer(self.api, self.run_id)
            try:
                yield from claiming.claim_after(head.epoch if head else 0)
            except ClaimLost as error:
                self._claiming = None
                raise self._fenced() from error
        claiming.records.base64 = takes_base64
        claimed, self._claiming = claiming, None
        self.writer, claimed.numbers_unsure = claimed, True
        self._stale.clear()
        self._written.clear()
        yield from self._sync(claimed)
        before = head.next_checkpoint_seq if head is not None else 1
        if parent is not None and claimed.next_checkpoint_seq != before:
            # Another writer's checkpoint arrived before the claim.
            self._supersede(claimed)
            raise self._fenced()
        return claimed

    def claim(self) -> Steps[None]:
        """Takes the run over, unless this object has it."""
        yield from self.acquire()
        try:
            yield from self.ready(None)
        finally:
            self.lock.release()

    def check_owned(self) -> Steps[None]:
        """Raises `Fenced` if another writer has the run now."""
        yield from self.acquire()
        try:
            yield from self._sync((yield from self.ready(None)))
        finally:
            self.lock.release()

    def _settle(self, writer: Writer) -> Steps[None]:
        settled = yield from writer.settle()
        if settled is None:
            return
        writer.numbers_unsure = True
        try:
            writer.check(*settled)
        except Fenced as error:
            self._supersede(writer)
            raise self._fenced() from error
        except Conflict:
            pass  # a refused record has no effect, and its caller got an error

    def _check_read(self, parent: Key, head: Head, *, superseded: bool) -> None:
        if parent in self._stale:
            # The loop gets this error once. Another loop that reads the checkpoint may continue from it.
            self._stale.discard(parent)
            self._seen.pop(parent, None)
            raise self._fenced()
        seen = self._seen.get(parent)
        # A claim or a checkpoint of another writer came after the read.
        if seen != head.version and (superseded or seen is not None):
            raise self._fenced()

    def _sync(self, writer: Writer) -> Steps[None]:
        """Reads the next numbers, the index and a base for the next checkpoint from the journal."""
        head = yield from self.api.run(self.run_id)
        try:
            writer.sync(head or {"writer_id": "", "epoch": 0})
        except ClaimLost as error:
            self._supersede(writer)
            raise self._fenced() from error
        found = yield from self.api.checkpoint(self.run_id)
        self._check_latest(found, writer.next_checkpoint_seq)
        if found is not None and found["checkpoint_seq"] >= writer.next_checkpoint_seq:
            self._supersede(writer)  # from another writer, after the claim
            raise self._fenced()
        self.index = Index.of(found)
        self.lists = OrderedDict([("", MessageList.of(found))])

    def copy_of(self, source: Thread) -> Steps[bool]:
        """Lets the server copy a thread into this one, which has no run yet. False if the server cannot copy. The
        lock is held."""
        if "copies" not in (yield from self.api.features()) or (yield from self.head()) is not None:
            return False
        writer = yield from self.ready(None)
        try:
            yield from self.api.copy(source.run_id, self.run_id, writer.writer_id, writer.epoch)
        except TooLarge:
            return False
        writer.numbers_unsure = True
        yield from self._sync(writer)
        return True

    def append(self, writer: Writer, records: Sequence[Record]) -> Steps[None]:
        """Appends records under the claim."""
        try:
            yield from writer.append(records)
        except Fenced as error:
            self._supersede(writer)
            raise self._fenced() from error
        except Conflict:
            self.lists.clear()
            raise

    def put(
        self, writer: Writer, ns: str, checkpoint_id: str, parent: str | None, metadata: Json,
        pieces: Sequence[Json], entry: Json,
    ) -> Steps[None]:  # fmt: skip
        """Puts a checkpoint under the claim."""
        number, loop, incarnation = writer.next_journal_seq, new_id(), self.index.incarnation
        content: Json = {
            "incarnation": incarnation,
            "ns": ns,
            "id": checkpoint_id,
            "parent": parent,
            "covers": number,
            "loop": loop,
            "metadata": metadata,
        }
        correlation = [
            ("lg.thread", str(incarnation)),
            ("lg.namespace", digest(incarnation, ns)),
            ("lg.checkpoint", digest(incarnation, ns, checkpoint_id)),
        ]
        record = writer.records.host(FAMILY, "checkpoint", encode(content).encode(), correlation)
        index = self.index.with_head(Marker(ns, checkpoint_id, parent, number, loop))
        base = self.lists.get(ns) or next(reversed(self.lists.values()), MessageList())
        yield from self._append_index(writer, record, loop, index, entry, pieces, base, ns)
        self._written[ns] = checkpoint_id
        self._written.move_to_end(ns)
        if len(self._written) > NAMESPACES_MAX:
            self._written.popitem(last=False)
        self._note_seen((ns, checkpoint_id), (writer.epoch, writer.next_checkpoint_seq))

    def _append_index(
        self, writer: Writer, record: Record, loop: str, index: Index, entry: Json, pieces: Sequence[Json],
        base: MessageList, ns: str,
    ) -> Steps[None]:  # fmt: skip
        """Appends a numbered record, and the loop checkpoint that covers it."""
        number = writer.next_journal_seq
        fields: dict[str, Json] = {
            "checkpoint_seq": writer.next_checkpoint_seq,
            "covers_journal_seq": number,
            "session_id": FAMILY,
        }
        payload, following = _checkpoint.build(base, loop, pieces, fields, index.state(entry))
        checkpoint = writer.records.make(payload, record_id=loop)
        yield from self.append(writer, [{**record, "journal_seq": number}, checkpoint])
        self.index = index
        self.lists[ns] = following
        self.lists.move_to_end(ns)
        if len(self.lists) > NAMESPACES_MAX:
            self.lists.popitem(last=False)

    def delete(self, keys: Sequence[tuple[str, str]] | None) -> Steps[None]:
        """Deletes checkpoints and their writes; `None` deletes the thread. Takes the run over. The lock is held."""
        writer = yield from self.ready(None)
        if keys is None:
            yield from self._append_tombstones(writer, [], Index(self.index.incarnation + 1))
            return
        left = {marker.key: marker for marker in (yield from self.all_markers(self.index.incarnation))}
        for at in range(0, len(keys), DELETE_MAX):
            some = keys[at : at + DELETE_MAX]
            for key in some:
                left.pop(key, None)
            index = Index(self.index.incarnation, ordered=self.index.ordered)
            for marker in left.values():
                index = index.with_head(marker)
            yield from self._append_tombstones(writer, some, index)

    def _append_tombstones(self, writer: Writer, keys: Sequence[tuple[str, str]], index: Index) -> Steps[None]:
        parts = [keys[at : at + TOMBSTONE_KEYS_MAX] for at in range(0, len(keys), TOMBSTONE_KEYS_MAX)] or [[]]
        for some in parts[:-1]:
            yield from self.append(writer, [self._tombstone(writer, some)])
        last = self._tombstone(writer, parts[-1])
        yield from self._append_index(writer, last, new_id(), index, None, [], MessageList(), "")
        self._written.clear()

    def _tombstone(self, writer: Writer, keys: Sequence[tuple[str, str]]) -> Record:
        incarnation = self.index.incarnation
        content: Json = {"incarnation": incarnation, "keys": [list(key) for key in keys]}
        found_by = {("lg.thread", str(incarnation)): None}
        for ns, checkpoint_id in keys:
            found_by["lg.namespace", digest(incarnation, ns)] = None
            found_by["lg.checkpoint", digest(incarnation, ns, checkpoint_id)] = None
        return writer.records.host(FAMILY, "tombstone", encode(content).encode(), list(found_by))
