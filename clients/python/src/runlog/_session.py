"""The core of a handle on a run. Operations run one at a time; each first settles records, calls and results of earlier
operations.

operation ─▶ lock ─▶ make_ready (see `_settling`) ─▶ append
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from . import _checkpoint
from ._api import Api, Object
from ._checkpoint import MessageList
from ._covered import Covered
from ._divergence import Divergence, OnDivergence
from ._json import Json
from ._opening import claim_inactive
from ._records import Record, lifecycle, new_id
from ._replay import CallKey, Replay, key_of, request_order
from ._settling import Releasable, Settling
from ._wire import Steps
from .errors import Conflict, Error, Internal

BATCH_RECORDS_MAX = 4096


class Session(Settling):
    """A run that this process has claimed."""

    lists_keys: ClassVar[bool] = False
    """Whether an adapter is in use that lists the keys of ended runs at a point where it cannot wait for a request."""

    def __init__(
        self,
        api: Api,
        run_id: str,
        lock: Releasable,
        slots: Releasable,
        *,
        allow_unresolved: bool,
        on_divergence: OnDivergence,
    ) -> None:
        super().__init__(api, run_id, lock)
        self.slots = slots
        self.covered_calls = Covered(self.api, run_id)
        self.divergence = Divergence(run_id, on_divergence)
        self.state: Json = None
        """The state of the last checkpoint."""
        self.quiet_checkpoint: str | None = None
        """The last checkpoint that was taken while no call was in flight."""
        self.uncovered: list[CallKey] = []
        """The keys of recorded calls that this checkpoint does not cover, as of the claim, in the order of their
        requests."""
        self.covered: int = 0
        """The number that the last checkpoint covers."""
        self.allow_unresolved = allow_unresolved
        self.warned_of_repeatable = False

    # Opening

    def open(self, *, from_start: bool, unless_active: float | None) -> Steps[Object]:
        """Claims the run and returns its recovery after the claim. An ended run is read, not claimed."""
        writer = self.writer
        head = yield from self.api.run(self.run_id)
        if unless_active is None:
            if head is None or head["status"] == "open":
                yield from writer.claim_after(head["epoch"] if head else 0)
        else:
            yield from claim_inactive(writer, head, unless_active)
        recovery = yield from self._recovery(from_start=from_start)
        self.replay = Replay(recovery)
        self.base = MessageList.of(recovery["checkpoint"])
        self.quiet_checkpoint = self.base.checkpoint_id
        calls = sorted((*recovery["completed"], *recovery["pending"]), key=request_order)
        self.uncovered = [key_of(call) for call in calls]
        checkpoint: Object = recovery["checkpoint"] or {}
        self.state = checkpoint.get("state")
        self.covered = int(checkpoint.get("covers_journal_seq") or 0)
        self.divergence.expect(recovery, self.covered)
        if recovery["status"] != "open":
            writer.end(recovery["status"])
            if self.lists_keys:
                yield from self.covered_calls.read_all(self.replay)
        elif recovery["next_journal_seq"] == 1:
            yield from writer.append([writer.records.make(lifecycle("started"))])
        return recovery

    def _recovery(self, *, from_start: bool) -> Steps[Object]:
        found = yield from self.api.recovery(self.run_id, from_start=from_start, content=True)
        if found is None:
            raise Internal(f"run {self.run_id} has no records after its claim", run_id=self.run_id)
        if self.writer.epoch:
            self.writer.sync(found)
        return found

    # Operations

    def append(self, payload: Object) -> Steps[Object]:
        """Appends a record and waits until it is applied."""
        yield from self.acquire()
        try:
            yield from self.make_ready()
            [outcome] = yield from self.writer.append([self.writer.records.make(payload)])
            return outcome
        finally:
            self.lock.release()

    def end(self, status: str, reason: str) -> Steps[None]:
        """Ends the run, unless it has already ended in the same way."""
        yield from self.acquire()
        try:
            yield from self.make_ready(may_have_ended=True)
            if self.writer.ended is not None:
                yield from self._check_same_end(self.writer.ended, status, reason)
                return
            yield from self.writer.append([self.writer.records.make(lifecycle(status, reason))])
            self.writer.end(status)
        finally:
            self.lock.release()

    def _check_same_end(self, ended: str, status: str, reason: str) -> Steps[None]:
        recorded = yield from self.api.end_reason(self.run_id, ended)
        # Records of another SDK have no reason.
        if status != ended or recorded not in (reason, None):
            what = f"it cannot end as {status} for the reason {reason!r}, because it ended for the reason {recorded!r}"
            raise self.writer.after_end(ended, what)

    def checkpoint(self, messages: Sequence[Json], state: Json, turn: int) -> Steps[None]:
        """Records messages and state. Writes only messages that the last checkpoint lacks. An ended run accepts only
        its last checkpoint again."""
        # Counted before the wait for the lock: the messages lack answers that arrive meanwhile.
        quiet = self.recent.is_quiet()
        with self.recent.checkpoint() as lacking:
            yield from self.acquire()
            try:
                yield from self.make_ready(may_have_ended=True)
                yield from self._append_checkpoint(messages, state, turn, lacking)
                if quiet and not lacking and self.writer.ended is None:
                    self.quiet_checkpoint, self.uncovered = self.base.checkpoint_id, []
            finally:
                self.lock.release()

    def _append_checkpoint(
        self, messages: Sequence[Json], state: Json, turn: int, lacking: Iterable[str]
    ) -> Steps[None]:
        writer, redaction = self.writer, self.api.config.redaction
        if not self.replay.at_checkpoint:
            yield from self.covered_calls.read_all(self.replay)
        if redaction is not None:
            messages = [redaction.json(None, message) for message in messages]
            state = redaction.json(None, state)
        covered = writer.next_journal_seq - 1
        fields: dict[str, Json] = {
            "checkpoint_seq": writer.next_checkpoint_seq,
            "covers_journal_seq": covered,
            "unanswered": list(dict.fromkeys((*self.replay.unanswered(), *lacking))),
            "turn": turn,
        }
        checkpoint_id = new_id()
        payload, following = _checkpoint.build(self.base, checkpoint_id, messages, fields, state)
        if writer.ended is not None and following.hashes == self.base.hashes and state == self.state:
            return
        try:
            yield from writer.append([writer.records.make(payload, record_id=checkpoint_id)])
        except Conflict:
            if writer.ended is None:
                # The base may be wrong: the next checkpoint is written whole.
                self.base = MessageList()
            raise
        self.base, self.state, self.covered = following, state, covered
        self.divergence.forget()

    def prune(self, covered_before: int | None, preserve_latest_terminal: bool) -> Steps[Object]:
        """Hides the checkpoints that cover less than a number; by default, less than the last checkpoint."""
        yield from self.acquire()
        try:
            yield from self.make_ready()
            payload: Object = {
                "type": "checkpoint_prune",
                "prune_covered_before": self.covered if covered_before is None else covered_before,
                "preserve_latest_terminal": preserve_latest_terminal,
            }
            # The next checkpoint is written whole: its base may be hidden.
            self.base = MessageList()
            [outcome] = yield from self.writer.append([self.writer.records.make(payload)])
            return outcome
        finally:
            self.lock.release()

    def batch(self, records: Sequence[Record]) -> Steps[Object]:
        """Appends records that are applied together or not at all."""
        yield from self.acquire()
        try:
            yield from self.make_ready()
            batch: Object = {"type": "batch", "records": [self.writer.signed(record) for record in records]}
            [outcome] = yield from self.writer.append([self.writer.records.make(batch)])
            return outcome
        finally:
            self.lock.release()

    def settle(self) -> Steps[None]:
        """Settles earlier operations."""
        yield from self.acquire()
        try:
            yield from self.make_ready(may_have_ended=True)
        finally:
            self.lock.release()

    def leave(self) -> Steps[None]:
        """Records results and decisions of interrupted operations, as far as possible now."""
        if self.outbox.results or self.outbox.never_started:
            with suppress(Error):
                yield from self.settle()

    def reopen(self) -> Steps[None]:
        """Settles earlier operations, and checks that this handle still writes the run."""
        yield from self.acquire()
        try:
            yield from self.make_ready()
            head = yield from self.api.run(self.run_id)
            if head is None or not self.writer.is_writer_in(head):
                raise self.writer.not_writer_in(head["epoch"] if head else 0)
        finally:
            self.lock.release()
