"""A LangGraph thread as a run: one writer, and an index that every checkpoint of the run carries.

    put     ─▶ one request: a numbered `checkpoint` record (found by its correlation entries), then a loop checkpoint that
               covers exactly that number, with the values as its messages and the index as its state
    read    ─▶ the run's latest loop checkpoint has the index: the newest checkpoint of each namespace, by that number
    delete  ─▶ a `tombstone` record, then a loop checkpoint with the new index; a deleted thread starts another incarnation

A checkpoint record whose loop checkpoint never arrived is not complete, and not shown.

Of two workers on a thread, the writer of the last record continues, through any number of servers:

    a  checkpoint ── checkpoint ──────────── refused: fenced ─▶ only b's claim since ─▶ claims again, and continues
    b  read ─────────────────── claim ─▶ the thread has a newer checkpoint ─▶ `Fenced`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from .. import _checkpoint
from .._api import NO_RECORDS, Api, Object
from .._checkpoint import Kept, MessageList
from .._json import Json, encode
from .._records import Record, digest, new_id
from .._settling import Releasable
from .._wire import Acquire, Steps
from .._writer import Writer
from ..errors import ClaimLost, Conflict, Error, Fenced, Internal, TooLarge, Unavailable
from ._index import FAMILY, Head, Index, Key, Marker, RemovedContent
from ._loops import Loops
from ._metadata import Entry, mark
from ._pieces import KnownPieces
from ._reader import LOG, Reader, namespace_entry, thread_entry

NAMESPACES_MAX = 64
SEEN_MAX = 1024
TOMBSTONE_KEYS_MAX = 31
"""A record has up to 64 correlation entries that are found: two for each key."""
DELETE_MAX = 1000
AS_READ = ", to continue the thread as it read it"
"""The purpose in a claim whose writer gives up, without a record, if another writer's record came before the claim."""
EMPTY = (0, 1)
"""The version of a thread without records."""
REGAINS_MAX = 16
"""The maximum number of times that one write takes its thread back."""

T = TypeVar("T")


class Thread(Reader):
    """A saver object's state of one thread, with its claim."""

    def __init__(
        self, api: Api, prefix: str, thread_id: str, lock: Releasable, pieces: KnownPieces, *, owned: bool = False
    ) -> None:
        super().__init__(api, prefix, thread_id)
        self.lock, self.pieces, self.owned = lock, pieces, owned
        """Whether the thread is claimed only once: a lost thread is not claimed again."""
        self.writer: Writer | None = None
        self._claiming: Writer | None = None
        """A claim whose answer was lost; the next try sends the same claim."""
        self.index = Index(prefix=prefix)
        self.lists: OrderedDict[str, MessageList] = OrderedDict()
        self._seen: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        """The run's epoch and its next checkpoint's number when a checkpoint was last read."""
        self._written: OrderedDict[str, str] = OrderedDict()
        """The last checkpoint of each namespace that this object wrote under its claim."""
        self._wrote_in = 0
        """The epoch of the last record that this object wrote."""
        self._without_writes: dict[str, str] = {}
        """The checkpoints of `_written` that have no writes of tasks."""
        self._early_writes: set[str] = set()
        """Namespaces in which writes came before their checkpoint: `_without_writes` does not have them."""
        self._indexed: set[Entry] = set()
        """Entries of metadata that this object wrote."""
        self.refused: OrderedDict[Key, Error] = OrderedDict()
        """Checkpoints that were not stored. Their writes and successors get the same error."""
        self._stale: set[Key] = set()
        """Checkpoints that were written under a lost claim: a loop that continues from them is superseded."""
        self._refused_claim: tuple[str, tuple[int, int]] | None = None
        """The namespace and the version that a loop had read whose claim was refused, until the thread is read again."""
        self._loops = Loops(self.run_id)

    def acquire(self) -> Steps[None]:
        """Waits for earlier operations of this object on the thread, in their order. The caller releases the lock."""
        if not (yield Acquire(self.lock, self.api.config.deadline)):
            raise Unavailable(f"timed out waiting for an earlier operation on run {self.run_id}", run_id=self.run_id)

    # Reading

    def head(self, *, full: bool = False, lost: bool = False) -> Steps[Head | None]:
        """As `Reader.head`. If the content of the latest loop checkpoint was removed, the next checkpoint gets no
        base."""
        head = yield from super().head(full=full, lost=lost)
        if head is not None and head.index.removed and self.writer is not None:
            self.writer.numbers_unsure = True
        return head

    def note_read(self, head: Head, key: Key, *, latest: bool) -> None:
        """Allows a loop to continue from this checkpoint, unless another writer claims the run later."""
        self._loops.note_read(key, head.version, latest=latest)
        writer = self.writer
        if writer is not None and writer.over is None and head.epoch < writer.epoch:
            return  # an answer older than the claim
        self.notice_claim(head)
        if self._refused_claim is not None and key[0] in ("", self._refused_claim[0]):
            self._refused_claim = None
        if latest:
            self._stale.discard(key)
        if key not in self._stale:
            self._note_seen(key, head.version)

    def notice_claim(self, head: Head) -> None:
        """Notes that another writer has claimed the run."""
        if self.writer is not None and self.writer.over is None and head.epoch > self.writer.epoch:
            self._supersede(self.writer)

    def note_absent(self, key: Key) -> None:
        """Allows a loop to begin the thread, unless another writer begins it first."""
        self._note_seen(key, EMPTY)

    def refuse(self, key: Key, error: Error) -> Error:
        """Notes a checkpoint that is not stored."""
        self.refused[key] = error
        if len(self.refused) > SEEN_MAX:
            self.refused.popitem(last=False)
        return error

    def _note_seen(self, key: Key, version: tuple[int, int]) -> None:
        self._seen[key] = version
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)

    def _last_seen(self, parent: Key, *, for_writes: bool) -> tuple[int, int] | None:
        """The version of the thread that a loop has read or written."""
        seen = self._seen.get(parent)
        if seen is None and for_writes:
            return max((version for (ns, _), version in self._seen.items() if ns == parent[0]), default=None)
        return seen

    def _supersede(self, writer: Writer) -> None:
        writer.lose(self._fenced())
        self._stale = set(self._written.items())
        self._written.clear()

    def _fenced(self) -> Fenced:
        how = "claim" if self.owned else "read"
        message = f"another writer took over run {self.run_id}; {how} the thread again to continue it"
        return Fenced(message, run_id=self.run_id)

    def has_no_writes(self, head: Head, key: Key) -> bool:
        """Whether this object put the checkpoint under its claim, and put no writes since. Then no writes need to be
        read."""
        writer, (ns, checkpoint_id) = self.writer, key
        return (
            writer is not None
            and (head.writer_id, head.version) == (writer.writer_id, (writer.epoch, writer.next_checkpoint_seq))
            and self._without_writes.get(ns) == checkpoint_id
        )

    def warn_of_removed(self, error: RemovedContent) -> None:
        """Warns, and lets the next checkpoint have the latest checkpoint as its base."""
        LOG.warning("%s", error.message)
        if self.writer is not None:
            self.writer.numbers_unsure = True

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

    def continue_loop(self, parent: Key, checkpoint_id: str, once: Callable[[Writer], Steps[T]]) -> Steps[T]:
        """As `write`, for a checkpoint of a loop. Raises `Fenced` if another loop of this object has continued `parent`."""
        # Every loop reads the thread before it begins it.
        self._loops.check(parent, checkpoint_id, has_read=parent[1] is not None or parent in self._seen)
        written = yield from self.write(parent, once)
        self._loops.note_continued(parent, checkpoint_id, self._seen[parent[0], checkpoint_id])
        return written

    def write(self, parent: Key, once: Callable[[Writer], Steps[T]], *, for_writes: bool = False) -> Steps[T]:
        """Writes under this object's claim. Writes again if a claim came in between whose worker gave up. The lock is
        held."""
        self._loops.check(parent, None, has_read=False)
        for left in reversed(range(REGAINS_MAX)):
            writer = yield from self.ready(parent, for_writes=for_writes)
            try:
                return (yield from once(writer))
            except Fenced:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _may_regain(self, parent: Key, head: Head, *, for_writes: bool) -> Steps[bool]:
        """Whether a loop continues although another worker claimed the thread: the loop has the last state that this object wrote,
        and since then there are only claims of workers that continue a thread as they read it. They read an older state, and
        give up."""
        writer = self.writer
        if writer is None or head.epoch <= writer.epoch or self._was_refused(parent, for_writes=for_writes):
            return False
        written = (writer.epoch, writer.next_checkpoint_seq)
        if parent not in self._stale and self._last_seen(parent, for_writes=for_writes) != written:
            return False
        if not {"only_if", "order"} <= (yield from self.api.features()):
            return False
        newest, _ = yield from self.api.newest_records(self.run_id, REGAINS_MAX)
        for line in newest:
            payload: Object = line.get("payload") or {}
            if line["payload_type"] != "run_claim":
                return bool(line["epoch"] == self._wrote_in)
            if not str(payload.get("claimed_by")).endswith(AS_READ):
                return False
        return False

    def ready(self, parent: Key | None, *, lost: bool = False, for_writes: bool = False) -> Steps[Writer]:
        """Returns this object's claim. Claims now if it has none, or if its claim was lost and `parent` was read since. A loop puts
        writes (`for_writes`) while the checkpoint that they belong to is still being put: the last read of the namespace counts.

        A loop that another loop supersedes gets `Fenced`, and claims nothing: the other loop continues. `None` as
        parent takes the run over in any case, also if its content is `lost`. The lock is held."""
        writer = self.writer
        if writer is not None and writer.over is None:
            yield from self._settle(writer)
            if writer.numbers_unsure:
                yield from self._sync(writer)
            return writer
        if writer is not None and self.owned:
            raise self._fenced()
        takes_base64 = "base64" in (yield from self.api.features())
        head = yield from self.head(lost=lost)
        if head is not None and head.status != "open":
            what = "its thread can be read, and neither written nor deleted"
            if lost:
                what += (
                    ", because a run has no record after its end; `runlog retention`, for all runs, removes contents"
                )
            raise Writer(self.api, self.run_id).after_end(head.status, what)
        claiming = self._claiming
        regains = False
        if head is None or claiming is None or not claiming.adopt({"writer_id": head.writer_id, "epoch": head.epoch}):
            if parent is not None and head is not None:
                regains = yield from self._may_regain(parent, head, for_writes=for_writes)
                if not regains:
                    self._check_read(parent, head, for_writes=for_writes)
            claiming = self._claiming = claiming or Writer(self.api, self.run_id)
            try:
                yield from self._append_claim(claiming, parent, head)
            except Fenced:
                if regains:
                    # Another claim or record came first. Checks whether its worker gives up.
                    return (yield from self.ready(parent, for_writes=for_writes))
                if parent is not None:
                    seen = self._last_seen(parent, for_writes=for_writes) or (head.version if head else EMPTY)
                    self._refused_claim = (parent[0], seen)
                raise
        claiming.records.base64 = takes_base64
        self._refused_claim = None
        claimed, self._claiming = claiming, None
        self.writer, claimed.numbers_unsure = claimed, True
        if not regains:
            self._written.clear()
        # This object wrote the last checkpoints.
        self._written.update((ns, str(checkpoint_id)) for ns, checkpoint_id in self._stale if regains)
        self._stale.clear()
        self._without_writes.clear()
        self._early_writes.clear()
        yield from self._sync(claimed, lost=lost)
        before = head.next_checkpoint_seq if head is not None else 1
        if parent is not None and claimed.next_checkpoint_seq != before:
            # Another writer's checkpoint arrived before the claim.
            self._supersede(claimed)
            raise self._fenced()
        return claimed

    def _append_claim(self, claiming: Writer, parent: Key | None, head: Head | None) -> Steps[None]:
        """Claims the run; with a parent only as it was read. Raises `Fenced` if another record or claim came first."""
        only_if = None
        if parent is not None and "only_if" in (yield from self.api.features()):
            only_if = head.hash if head else NO_RECORDS
        try:
            yield from claiming.claim_after(head.epoch if head else 0, only_if, AS_READ)
        except (ClaimLost, Conflict) as error:
            if isinstance(error, Conflict) and only_if is None:
                raise
            self._claiming = None
            raise self._fenced() from error

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

    def _was_refused(self, parent: Key, *, for_writes: bool) -> bool:
        """Whether the loop of a write ends, because its claim was refused. A loop that runs ahead has further writes, of
        checkpoints that were never put. They must not fence the worker that continues."""
        if self._refused_claim is None:
            return False
        seen = self._last_seen(parent, for_writes=for_writes)
        return seen is None or seen <= self._refused_claim[1]

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

    def _check_read(self, parent: Key, head: Head, *, for_writes: bool) -> None:
        """Raises `Fenced` for a loop that another loop supersedes."""
        if self._was_refused(parent, for_writes=for_writes):
            raise self._fenced()
        if parent in self._stale:
            # The loop gets this error once. Another loop that reads the checkpoint may continue from it.
            self._stale.discard(parent)
            self._seen.pop(parent, None)
            raise self._fenced()
        # A claim or a checkpoint of another writer came after the read.
        seen = self._last_seen(parent, for_writes=for_writes)
        if seen != head.version and (self.writer is not None or seen is not None):
            raise self._fenced()

    def _sync(self, writer: Writer, *, lost: bool = False) -> Steps[None]:
        """Reads the next numbers, the index and a base for the next checkpoint from the journal."""
        found = yield from self.api.resume_point(self.run_id, full=True, texts=True)
        if found is None:
            raise Internal(f"run {self.run_id} has no records after its claim", run_id=self.run_id)
        try:
            writer.sync(found)
        except ClaimLost as error:
            self._supersede(writer)
            raise self._fenced() from error
        index = yield from self.index_of(found, lost=lost)
        # A checkpoint without content is no base: the next checkpoint is written whole.
        self.lists = OrderedDict([("", MessageList.of(None if index.removed else found["checkpoint"]))])
        self.index = replace(index, prefix=self.prefix, removed=False)

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
        self._wrote_in = writer.epoch

    def put(
        self, writer: Writer, ns: str, checkpoint_id: str, parent: str | None, metadata: Json,
        pieces: Sequence[Json | Kept], entry: Json, entries: Sequence[Entry] = (),
    ) -> Steps[MessageList]:  # fmt: skip
        """Puts a checkpoint under the claim, with the entries of its metadata. Returns the list of its pieces."""
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
            thread_entry(incarnation),
            namespace_entry(incarnation, ns),
            ("lg.checkpoint", digest(incarnation, ns, checkpoint_id)),
        ]
        if not self.index.heads and not self.index.more:
            correlation.append(mark(self.prefix))
        correlation += (entry for entry in entries if entry not in self._indexed)
        record = writer.records.host(FAMILY, "checkpoint", encode(content).encode(), correlation)
        newest, index = self.index.heads.get(ns), self.index.with_head(Marker(ns, checkpoint_id, parent, number, loop))
        yield from self._append_index(writer, record, loop, index, entry, pieces, self.base(ns), ns)
        self._note_indexed(entries)
        self._written[ns] = checkpoint_id
        self._written.move_to_end(ns)
        self._without_writes.pop(ns, None)
        # A checkpoint that is put again may have writes.
        is_new = not index.more if newest is None else checkpoint_id > newest[0]
        if is_new and ns not in self._early_writes:
            self._without_writes[ns] = checkpoint_id
        if len(self._written) > NAMESPACES_MAX:
            self._without_writes.pop(self._written.popitem(last=False)[0], None)
        self._note_seen((ns, checkpoint_id), (writer.epoch, writer.next_checkpoint_seq))
        self._loops.note_put((ns, checkpoint_id))
        return self.lists[ns]

    def _note_indexed(self, entries: Sequence[Entry]) -> None:
        if len(self._indexed) + len(entries) > SEEN_MAX:
            self._indexed.clear()
        self._indexed.update(entries)

    def put_writes(
        self, writer: Writer, ns: str, checkpoint_id: str | None, content: Mapping[str, Json]
    ) -> Steps[None]:
        """Puts writes of a checkpoint's task under the claim."""
        self._without_writes.pop(ns, None)
        newest, incarnation = self.index.heads.get(ns), self.index.incarnation
        if newest is None or checkpoint_id is None or checkpoint_id > newest[0]:
            self._early_writes.add(ns)
        text = encode({**content, "incarnation": incarnation}).encode()
        entry = ("lg.writes", digest(incarnation, ns, checkpoint_id))
        yield from self.append(writer, [writer.records.host(FAMILY, "writes", text, [entry])])

    def base(self, ns: str) -> MessageList:
        """The list that a namespace's next checkpoint is based on."""
        return self.lists.get(ns) or next(reversed(self.lists.values()), MessageList())

    def _append_index(
        self, writer: Writer, record: Record, loop: str, index: Index, entry: Json, pieces: Sequence[Json | Kept],
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
        """Deletes checkpoints and their writes; `None` deletes the thread, also if its content is lost. Takes the run over.
        The lock is held."""
        writer = yield from self.ready(None, lost=keys is None)
        if keys is None:
            yield from self._append_tombstones(writer, [], Index(self.index.incarnation + 1, prefix=self.prefix))
            self._loops.note_deleted(self._seen, (writer.epoch, writer.next_checkpoint_seq))
            return
        left = {marker.key: marker for marker in (yield from self.all_markers(self.index.incarnation))}
        for at in range(0, len(keys), DELETE_MAX):
            some = keys[at : at + DELETE_MAX]
            for key in some:
                left.pop(key, None)
            yield from self._append_tombstones(writer, some, self.index.without(set(some), left.values()))

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
        found_by = {thread_entry(incarnation): None}
        for ns, checkpoint_id in keys:
            found_by[namespace_entry(incarnation, ns)] = None
            found_by["lg.checkpoint", digest(incarnation, ns, checkpoint_id)] = None
        return writer.records.host(FAMILY, "tombstone", encode(content).encode(), list(found_by))
