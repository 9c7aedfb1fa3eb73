"""Settles the remainder of a handle's earlier operations: records without an answer, interrupted calls, results whose
caller has stopped waiting.

make_ready ─▶ unacknowledged records are sent again ─▶ interrupted calls answer the next calls
              ─▶ intents whose effect never started are withdrawn ─▶ released results are recorded
              the run is lost or ended ─▶ results are left as evidence
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from ._api import Api, Object
from ._checkpoint import MessageList
from ._marker import without_content
from ._outbox import NeverStarted, Outbox
from ._recent import Recent
from ._records import Record, new_id, payload_of, payload_type
from ._replay import CallKey, PendingCall, RecordedCall, Replay, key_of, recorded_call
from ._wire import Acquire, Steps
from ._writer import INTENTS, Writer, took_effect
from .errors import (
    Action,
    Conflict,
    Error,
    Fenced,
    Forbidden,
    Forked,
    Happened,
    Invalid,
    ReconcileRequired,
    TooLarge,
    Unavailable,
)  # fmt: skip

EVIDENCE_TRIES = 3
_RESULTS = ("tool_call_completed", "tool_call_failed")


class Releasable(Protocol):
    """A lock or a semaphore of a driver."""

    def release(self) -> Any:
        """Releases it."""
        ...


class Settling:
    """A claimed run with the operations that are not settled yet."""

    def __init__(self, api: Api, run_id: str, lock: Releasable) -> None:
        self.api = api.for_run()
        self.run_id = run_id
        self.writer = Writer(self.api, run_id)
        self.outbox = Outbox()
        self.replay = Replay({"checkpoint": None, "completed": [], "pending": []})
        self.recent = Recent()
        self.base = MessageList()
        """The list on which the next checkpoint is based."""
        self.lock = lock
        self.pid = os.getpid()

    def check_process(self) -> None:
        """Two processes with one writer id would both be the run's writer."""
        if os.getpid() != self.pid:
            message = f"the handle on run {self.run_id} belongs to process {self.pid}; open the run in this process"
            raise Forked(message, run_id=self.run_id)

    def acquire(self) -> Steps[None]:
        """Waits for earlier operations. The caller releases the lock."""
        self.check_process()
        seconds = self.api.config.deadline
        if not (yield Acquire(self.lock, seconds)):
            message = f"timed out after {seconds:g} s waiting for an earlier operation on run {self.run_id}"
            raise Unavailable(message, run_id=self.run_id)

    def make_ready(self, *, may_have_ended: bool = False) -> Steps[None]:
        """Settles unacknowledged records, interrupted calls and released results. The lock is held.

        Raises if no record can be appended any more; with `may_have_ended`, an ended run does not raise."""
        if self.writer.over is None:
            with suppress(Fenced, Conflict):
                yield from self._settle_unacknowledged()
        if self.writer.over is not None:
            with suppress(Error):
                yield from self._append_all_evidence()
            if self.writer.ended is None or not may_have_ended:
                self.writer.check_over()
        abandoned, returned = self.outbox.take_interrupted()
        for key, call in abandoned:
            self.replay.restore(key, call)
        for call in returned:
            self.replay.put_back(None, call)
        if self.writer.over is not None:
            return
        yield from self._settle_never_started()
        yield from self._record_released()
        yield from self.writer.sync_if_unsure()

    def _settle_unacknowledged(self) -> Steps[None]:
        sent = self.writer.unacknowledged or ()
        try:
            settled = yield from self.writer.settle()
        except (Invalid, TooLarge):
            if any(str(payload_of(record).get("request_record_id")) in self.outbox.results for record in sent):
                return  # `_record_released` ends the call without the content
            raise
        if settled is None:
            return
        for record, outcome in zip(*settled, strict=True):
            payload, kind = payload_of(record), payload_type(record)
            if kind in INTENTS and took_effect(outcome) and self.writer.wrote(outcome):
                self._note_landed_intent(record, kind, outcome)
            elif kind in _RESULTS and took_effect(outcome):
                self.mark_recorded(str(payload["request_record_id"]))
            elif kind == "run_lifecycle" and payload["status"] != "started" and took_effect(outcome):
                self.writer.end(str(payload["status"]))
            elif kind == "loop_checkpoint" and not took_effect(outcome):
                self.base = MessageList()
        self.writer.check(*settled)

    def _note_landed_intent(self, record: Record, kind: str, outcome: Object) -> None:
        """Handles an intent or attempt that is in the log after all. Its caller got an error, and its effect never
        started."""
        payload, record_id = payload_of(record), str(record["record_id"])
        if kind == "tool_call_attempt":
            # The request is among the recorded calls; its attempt is only counted.
            self.outbox.never_started.append(
                NeverStarted(RecordedCall(str(payload["request_record_id"]), ""), None, record_id, outcome["position"])
            )
            return
        name = str(payload["tool_name"])
        key: CallKey = (name, str(record["idempotency_key"])) if "idempotency_key" in record else None
        call = RecordedCall(record_id, str(payload["fingerprint"]), _never_started(1), name)
        self.replay.add(outcome.get("journal_seq") or 0, key, call)
        self.outbox.never_started.append(NeverStarted(call, key, record_id, outcome["position"]))

    def _settle_never_started(self) -> Steps[None]:
        """Settles intents whose effect this process never started, so that the calls can run again."""
        while self.outbox.never_started:
            intent = self.outbox.never_started[0]
            answer = yield from self.api.outcome(
                self.run_id, intent.record_id, intent.position, self.api.config.read_back
            )
            if not self.writer.is_writer_in(answer):
                raise self.writer.lose(self.taken_over(intent.record_id, answer))
            if not (took_effect(answer) and self.writer.wrote(answer)):
                # The journal refused the intent, but that answer was lost.
                if intent.call.fingerprint:
                    self.replay.forget(intent.call.id)
                self.outbox.never_started.pop(0)
                continue
            pending = yield from self.pending_call(intent.call.id)
            if _needs_not_done(pending):
                try:
                    record = self.writer.records.not_done(intent.call.id, self.writer.epoch)
                    yield from self.writer.append([record])
                except (Conflict, Forbidden, ReconcileRequired):
                    # An operator decided, an earlier attempt left evidence, or the token may not decide: the journal has
                    # the call's state.
                    self.writer.unacknowledged = None
                pending = yield from self.pending_call(intent.call.id)
            self._restore(intent, pending)
            self.outbox.never_started.pop(0)

    def pending_call(self, call_id: str) -> Steps[Object | None]:
        """The journal's current state of a pending call. `None` for a call that is not pending."""
        now = yield from self.api.pending(self.run_id)
        return next((found for found in now["pending"] if found["id"] == call_id), None) if now else None

    def _restore(self, intent: NeverStarted, pending: Object | None) -> None:
        """Makes a call with the journal's state answer the next call."""
        if pending is not None and (call := recorded_call(pending)) is not None:
            self.replay.restore(key_of(pending) or intent.key, call)
        elif intent.call.fingerprint:
            self.replay.restore(intent.key, replace(intent.call, pending=None))

    def _record_released(self) -> Steps[None]:
        """Appends the results whose caller has stopped waiting."""
        while (held := self.outbox.next_released()) is not None:
            try:
                yield from self.append_result(held.record)
            except Conflict as error:
                if error.problem.get("reason") not in ("transition", "ended"):
                    raise
                # An operator decided how the call ended; the decision is its answer.
            self.mark_recorded(held.call.id)

    def mark_recorded(self, request: str) -> None:
        """Marks a held result as recorded: the journal now answers the same call."""
        held = self.outbox.remove(request)
        if held is not None:
            self.replay.restore(held.key, held.call)

    def mark_answered(self, call_id: str) -> None:
        """Marks that the agent receives the answer of a call. The lock is held."""
        self.replay.mark_answered(call_id)
        self.recent.answered(call_id)

    def refresh(self) -> Steps[None]:
        """Reads decisions that were made since."""
        writer = self.writer
        now = yield from self.api.pending(self.run_id)
        if now is not None and (now["epoch"], now["next_journal_seq"]) < (writer.epoch, writer.next_journal_seq):
            # The answer is of an older state and lacks newer calls, or a skip has taken the last numbers away.
            now = yield from self.api.pending(self.run_id, writer.seen)
        if now is not None and now["epoch"] > writer.epoch and writer.ended is None:
            # Its calls are another process's.
            raise writer.not_writer_in(now["epoch"])
        if now is not None and now["epoch"] >= writer.epoch:
            self.replay.refresh(now)
            self.replay.adopt(now, lambda call: call in self.outbox.running or call in self.outbox.results)

    def append_result(self, record: Record) -> Steps[None]:
        """Appends the result of a call. If the server refuses it for its content, the call ends without its result.
        The lock is held."""
        try:
            yield from self.writer.append([record])
        except (Invalid, TooLarge) as error:
            if error.happened is not Happened.NOTHING:
                # An earlier try had no answer, as when a server refuses a long body and cuts the connection off.
                landed = yield from self.api.landed(self.run_id, str(record["record_id"]))
                self.writer.unacknowledged = None
                if landed is not None and took_effect(landed):
                    return
            yield from self.writer.append([without_content(record, error)])

    # A lost or ended run

    def _append_all_evidence(self) -> Steps[None]:
        """Appends all released results as evidence, including a result whose append was unknown."""
        for record in self.writer.unacknowledged or ():
            request = str(payload_of(record).get("request_record_id"))
            if payload_type(record) in _RESULTS and request not in self.outbox.results:
                yield from self._append_evidence(record)
        self.writer.unacknowledged = None
        while (held := self.outbox.next_released()) is not None:
            yield from self.keep_evidence(held.record)
            self.outbox.remove(held.call.id)
        while self.outbox.never_started:
            intent = self.outbox.never_started[0]
            # Only the new writer of a lost run knows whether it started the effect since.
            if not self.writer.lost and _needs_not_done((yield from self.pending_call(intent.call.id))):
                record = self.writer.records.not_done(intent.call.id, self.writer.epoch)
                with suppress(Forbidden, ReconcileRequired):
                    yield from self.writer.append_evidence(record)
            self.outbox.never_started.pop(0)

    def keep_evidence(self, record: Record) -> Steps[None]:
        """Appends a result as evidence until the journal keeps it."""
        for _ in range(EVIDENCE_TRIES):
            if (yield from self._append_evidence(record)):
                return
            record = {**record, "record_id": new_id()}
        message = f"run {self.run_id}: a result was refused {EVIDENCE_TRIES} times and is not kept as evidence yet"
        raise Unavailable(message, action=Action.REOPEN, run_id=self.run_id)

    def _append_evidence(self, record: Record) -> Steps[bool]:
        try:
            return (yield from self.writer.append_evidence(record))
        except (Invalid, TooLarge) as error:
            return (yield from self.writer.append_evidence(without_content(record, error)))

    def taken_over(self, record_id: str, answer: Object) -> Fenced:
        """Makes the error for an applied intent whose effect belongs to the run's new writer."""
        message = (
            f"run {self.run_id} was taken over by writer {answer['writer_id']} in epoch {answer['epoch']} after record "
            f"{record_id}: its effect was not run here"
        )
        return Fenced(message, run_id=self.run_id, record_id=record_id)


def _needs_not_done(pending: Object | None) -> bool:
    """Whether this process must record that a call did not happen, so that it can run again. This process started neither its last
    intent nor its last attempt.

    A call with a key, or a repeatable one, may run again anyway, and an earlier attempt of it may have happened: a `not_done` would
    be false. Any other call gets an attempt only after a decision that it did not happen. If a result of an earlier attempt arrived
    since, somebody else decides."""
    return pending is not None and pending["class"] != "retry_safe" and not pending["evidence"]


def _never_started(attempts: int) -> PendingCall:
    return PendingCall(True, "its effect was never started", attempts)
