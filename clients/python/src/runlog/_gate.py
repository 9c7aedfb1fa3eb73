"""The gate: an effect runs at most once, unless its key makes running it again safe.

    recorded, completed ─▶ the recorded answer; the effect does not run
    recorded, pending   ─▶ retry_safe: attempt appended, read back ─▶ effect ─▶ result
                           otherwise: ReconcileRequired; nothing runs
    new                 ─▶ intent appended, read back ─▶ effect ─▶ result

Read back: at `latest`, as applied, as this handle's record, with this handle still the run's writer, and with a call that has not
changed since. Matching a call and appending its intent happens one call at a time; read-backs and effects of many calls overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ._api import Object
from ._clock import SentAt
from ._effect import Answer, Call, check_effect
from ._ends import Ends, Recorder
from ._json import Json, args_sha256, fingerprint
from ._marker import read_marker
from ._outbox import InFlight, Slot
from ._records import Record, new_id
from ._refusals import Refusals, ran
from ._replay import KeyConflict, PendingCall, RecordedCall, call_key
from ._session import Session
from ._values import arguments_json
from ._wire import Acquire, Perform, Sleep, Steps
from ._writer import took_effect
from .errors import (
    Action,
    Conflict,
    Error,
    Failed,
    Fenced,
    Happened,
    Invalid,
    ReconcileRequired,
    ResultNotRecorded,
    Stale,
    TooLarge,
    Unavailable,
    is_doubt,
)  # fmt: skip

if TYPE_CHECKING:
    from tenacity import Retrying

_LOGGER = logging.getLogger("runlog")
FRESH = 5.0
"""The maximum seconds from a read-back to the start of the effect. After that the gate reads back once more: another process may
have taken the run over."""
START_WITHIN = 20.0
"""The maximum seconds from the first send of an intent or attempt to the start of its effect. A server lets an
operator decide about a call once its run's writer has written nothing for 30 s (docs/protocol.md, "Start the effect
at once"). A later answer to the intent shows only that it was applied. The call may have been decided since."""


@dataclass(slots=True)
class _Admitted:
    """A call whose effect may run."""

    flight: InFlight
    attempt: int
    acked: Object
    """The answer to its intent or attempt."""
    read_back: SentAt
    """The time of the last read-back."""
    not_started: Happened = Happened.UNKNOWN
    """Whether the effect happened, if this attempt is not started."""


class _ReadBackTooOld(Exception):
    """The effect was not started."""


class Gate:
    """One call of a tool."""

    def __init__(
        self,
        session: Session,
        tool: str,
        arguments: object,
        *,
        key: str | None = None,
        ends: Ends | None = None,
        unique: bool = False,
        repeatable: bool = False,
        retry: Retrying | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        self.key = call_key(tool, key)
        self.session, self.tool, self.ends = session, tool, ends or Ends()
        self.refusals = Refusals(session.run_id, tool)
        self.unique = unique and key is None
        self.repeatable = repeatable
        self.decode = decode
        """Converts a recorded result."""
        self.attempts: Attempts | None = None
        if retry is not None:
            # tenacity is optional. Its policy shows that it is installed.
            from ._attempts import Attempts, check_policy

            check_policy(retry, tool, is_safe=key is not None or repeatable)
            self.attempts = Attempts(retry)
        self.safe_to_retry = key is not None
        """Whether the call may run again although it may have happened."""
        self.config = session.api.config
        try:
            value = arguments_json(arguments)
        except Invalid as error:
            raise error.copy(
                message=f"the arguments of {tool} cannot be recorded, and nothing ran: {error.message}"
            ) from error
        self.hash = args_sha256(value)
        self.fingerprint = fingerprint(tool, self.hash)
        self.arguments: Json = self.config.redaction.json(tool, value) if self.config.redaction else value

    def run(self, effect: Callable[[Call], Any]) -> Steps[Answer]:
        """Runs `effect` unless the journal has the call's answer, and records how it ended.

        Raises `Usage` before anything is recorded if `effect` cannot be called with a `Call`."""
        check_effect(effect, self.tool)
        self.session.divergence.note_call(self.tool, self.repeatable)
        with self.session.recent.call():
            return (yield from self._run(effect))

    def _run(self, effect: Callable[[Call], Any]) -> Steps[Answer]:
        slot = yield from self._slot()
        try:
            admitted = yield from self._admit(slot)
        except BaseException:
            slot.release()
            raise
        if isinstance(admitted, Answer):
            slot.release()
            return admitted
        try:
            while True:
                self.session.check_process()
                failure: Failed | None = None
                result: Any = None
                try:
                    result = yield Perform(self._start(admitted, effect))
                except _ReadBackTooOld:
                    yield from self._read_back_again(admitted)
                    continue
                except Exception as error:
                    failure = self.ends.failure(error, is_repeat=self.safe_to_retry and admitted.attempt > 1)
                    if failure is None:
                        pause = self._pause(error)
                        if pause is None:
                            raise self._unknown(admitted.flight, error) from error
                        yield Sleep(pause)
                        yield from self._admit_again(admitted, f"retried after {type(error).__qualname__}")
                        continue
                return (yield from self._record(admitted.flight, result, failure))
        finally:
            admitted.flight.drop()

    def _start(self, admitted: _Admitted, effect: Callable[[Call], Any]) -> Callable[[], Any]:
        call = Call(admitted.flight.call.id, admitted.attempt, self.key[1] if self.key else None)

        def begin() -> Any:
            # Checked here, because the process may have been suspended since the read-back.
            if admitted.read_back.age() > FRESH:
                raise _ReadBackTooOld
            # Set only here: an interruption before this point leaves a call that was never started.
            admitted.flight.start()
            return effect(call)

        return begin

    def _pause(self, error: Exception) -> float | None:
        """The seconds until the next attempt of an effect that may have happened. `None` if it does not run again."""
        return self.attempts.pause(error) if self.attempts is not None and self.safe_to_retry else None

    def _slot(self) -> Steps[Slot]:
        session = self.session
        session.check_process()
        if session.outbox.next_released() is not None:
            # Held results use slots, too.
            yield from session.settle()
        if not (yield Acquire(session.slots, self.config.deadline)):
            message = (
                f"timed out waiting for one of the {self.config.calls_max} calls in flight on run {session.run_id}"
            )
            raise Unavailable(message, run_id=session.run_id)
        return Slot(session.slots.release)

    # Before the effect

    def _admit(self, slot: Slot) -> Steps[Answer | _Admitted]:
        session = self.session
        yield from session.acquire()
        try:
            yield from session.make_ready(may_have_ended=True)
            replay = session.replay
            if session.writer.ended is not None or replay.unresolved() is not None or replay.has_revocable(self.key):
                yield from session.refresh()
            yield from session.covered_calls.find(replay, self.key)
            found = session.replay.take(self.key, self.fingerprint, unique=self.unique)
            if isinstance(found, KeyConflict):
                message = f"the idempotency key belongs to call {found.id} of {self.tool}, which has other arguments"
                raise Conflict(message, action=Action.FIX_THE_INPUT, run_id=session.run_id, record_id=found.id)
            if found is not None:
                # Calls of adapters and of ended runs intentionally begin at the start.
                begins = replay.took_covered and not self.unique and session.writer.ended is None
                session.divergence.note_asked(self.tool, found.id, begins_at_start=begins)
            if found is None:
                flight, acked = yield from self._intend(slot)
                attempt = 1
            else:
                flight, attempt, acked = yield from self._again(found, slot)
            if self.unique:
                session.replay.mark_unique(flight.call if flight is not None else acked["call"])
        finally:
            session.lock.release()
        if flight is None:
            return (yield from self._recorded(acked["call"]))
        try:
            read_back = yield from self._check_may_run(flight, acked)
        except BaseException as error:
            flight.drop()
            if isinstance(error, Error):
                # The intent is in the log.
                error.happened = Happened.UNKNOWN
            raise
        return _Admitted(flight, attempt, acked, read_back)

    def _read_back_again(self, admitted: _Admitted) -> Steps[None]:
        acked = {name: member for name, member in admitted.acked.items() if name != "asked_at"}
        try:
            admitted.read_back = yield from self._check_may_run(admitted.flight, acked)
        except Error as error:
            error.happened = admitted.not_started
            raise

    def _intend(self, slot: Slot) -> Steps[tuple[InFlight, Object]]:
        """Prepares a new call. No new effect runs while an older effect is unresolved."""
        session = self.session
        if (ended := session.writer.ended) is not None:
            what = f"no recorded call answers this one of {self.tool}, and nothing new runs"
            if self.key is None and session.replay.at_checkpoint and session.replay.covers:
                what += "; this process read `run.recovery`, so it must not make calls again that the last checkpoint covers"
            raise session.writer.after_end(ended, what)
        if not session.allow_unresolved and (blocking := session.replay.unresolved()) is not None:
            raise self.refusals.reconcile(blocking[0], "no new effect runs before it is resolved", tool=blocking[1])
        if self.key is None and not self.unique and not self.repeatable:
            # The key of a call, or the id in its arguments, shows that it repeats no other.
            yield from session.divergence.check(session.api, self.tool)
        payload: Object = {
            "type": "tool_call_requested",
            "request_id": new_id(),
            "call_id": "1",
            "tool_name": self.tool,
            "args_sha256": self.hash,
            "fingerprint": self.fingerprint,
            "arguments": self.arguments,
        }
        record = session.writer.records.make(payload, key=self.key[1] if self.key else None)
        has_bases = "bases" in (yield from session.api.features())
        if self.repeatable and self.key is None and not has_bases:
            self._warn_of_repeatable()
        if has_bases:
            record["facts"] = {
                "unresolved": "allow" if session.allow_unresolved else "refuse",
                **({"repeatable": True} if self.repeatable else {}),
            }
        [outcome] = yield from session.writer.append([record], read_back=True)
        self.safe_to_retry = self.key is not None or (self.repeatable and has_bases)
        pending = PendingCall(self.safe_to_retry, "running in this process", 1)
        call = RecordedCall(str(record["record_id"]), self.fingerprint, pending, self.tool)
        session.replay.add(outcome["journal_seq"], self.key, call)
        return InFlight(session.outbox, call, self.key, (call.id, outcome["position"]), slot), outcome

    def _warn_of_repeatable(self) -> None:
        if not self.session.warned_of_repeatable:
            self.session.warned_of_repeatable = True
            _LOGGER.warning(
                "%s is repeatable, but the server of run %s cannot record that, because it lacks the feature `bases`: if the "
                "process dies in such a call, the call waits for a decision. Give the tool a key instead",
                self.tool,
                self.session.run_id,
            )

    def _again(self, found: RecordedCall, slot: Slot) -> Steps[tuple[InFlight | None, int, Object]]:
        """Handles a recorded call: answers it, or runs it again if that is safe."""
        session, pending = self.session, found.pending
        kept = False
        try:
            if found.id in session.outbox.running:
                message = f"call {found.id} of {self.tool} is running in this process; retry when it has ended"
                raise Unavailable(message, run_id=session.run_id, record_id=found.id)
            if pending is None:
                kept = True
                return None, 0, {"call": found}
            if not pending.retry_safe:
                raise self.refusals.reconcile(found.id, pending.reason, pending)
            if (ended := session.writer.ended) is not None:
                what = (
                    f"call {found.id} of {self.tool} did not end, and is not run again; find out whether it happened, then "
                    f"decide: {self.refusals.decision(found.id)}"
                )
                raise session.writer.after_end(ended, what, found.id)
            self.safe_to_retry = self.key is not None or self.repeatable
            attempt = pending.attempts + 1
            outcome = yield from self._append_attempt(found.id, attempt, pending.reason)
            kept = True
            call = replace(found, pending=replace(pending, attempts=attempt))
            flight = InFlight(session.outbox, call, self.key, (outcome["record_id"], outcome["position"]), slot)
            return flight, attempt, outcome
        finally:
            if not kept and self.key is None:
                session.outbox.returned.append(found)

    def _append_attempt(self, call: str, attempt: int, reason: str) -> Steps[Object]:
        writer = self.session.writer
        payload: Object = {
            "type": "tool_call_attempt",
            "request_record_id": call,
            "attempt": attempt,
            "reason": reason,
        }
        try:
            [outcome] = yield from writer.append([writer.records.make(payload)], read_back=True)
        except ReconcileRequired as error:
            if is_doubt(error):
                raise
            # A result arrived since the call was read.
            raise self.refusals.reconcile(call, error.message) from error
        return outcome

    def _admit_again(self, admitted: _Admitted, reason: str) -> Steps[None]:
        """Records another attempt of an effect that this process ran. The effect may have happened if this raises."""
        session, flight = self.session, admitted.flight
        admitted.attempt += 1
        admitted.not_started = Happened.UNRECORDED
        try:
            yield from session.acquire()
            try:
                yield from session.make_ready()
                admitted.acked = yield from self._append_attempt(flight.call.id, admitted.attempt, reason)
                flight.admit_again(admitted.attempt, (admitted.acked["record_id"], admitted.acked["position"]))
            finally:
                session.lock.release()
            admitted.read_back = yield from self._check_may_run(flight, admitted.acked)
        except Error as error:
            error.happened = admitted.not_started
            raise

    def _check_may_run(self, flight: InFlight, acked: Object) -> Steps[SentAt]:
        """Checks that this handle's intent was applied, that its call has not changed since, **and** that this handle still writes
        the run. All are read at `latest` after the acknowledgement, in the same request if the server supports it. The time
        of the answer reveals a pause of this process. Returns the time of the read-back."""
        session, seconds = self.session, self.config.read_back
        begun = acked.get("asked_at")
        if begun is not None and begun.age() <= seconds:
            answer: Object = {**acked, **acked["writer"]}
        else:
            begun = SentAt()
            answer = yield from session.api.outcome(session.run_id, acked["record_id"], acked["position"], seconds)
        if begun.age() > seconds:
            message = f"timed out after {seconds:g} s reading back record {acked['record_id']} of run {session.run_id}"
            raise Stale(message, action=Action.REOPEN, happened=Happened.UNKNOWN, run_id=session.run_id)
        if (age := acked["sent_at"].age()) > START_WITHIN:
            message = (
                f"record {acked['record_id']} of run {session.run_id} was sent {age:.0f} s ago, more than {START_WITHIN:g} s: "
                "its effect was not run, because an operator may have decided about the call since; reopen the run"
            )
            raise Stale(message, action=Action.REOPEN, happened=Happened.UNKNOWN, run_id=session.run_id)
        if not took_effect(answer):
            raise session.writer.refused({"record_id": acked["record_id"]}, answer)
        if not session.writer.wrote(answer):
            raise session.writer.not_own(acked["record_id"], answer)
        if not session.writer.is_writer_in(answer):
            if answer["epoch"] < session.writer.epoch:
                raise session.writer.not_writer_in(answer["epoch"])
            raise session.writer.lose(session.taken_over(acked["record_id"], answer))
        if answer.get("changed"):
            now = yield from session.pending_call(flight.call.id)
            raise self.refusals.changed(flight.call.id, acked["record_id"], now)
        return begun

    def _recorded(self, found: RecordedCall) -> Steps[Answer]:
        """Reads the recorded answer. If that fails, the call stays available, and a changed call must not run in its place."""
        session, kept, answered = self.session, False, False
        try:
            answer = yield from session.api.call(session.run_id, found.id)
            lost = [of for of in answer["missing_content"] if of["payload_type"] != "tool_call_requested"]
            dropped = [of for of in answer["dropped"] if of["payload_type"] != "tool_call_requested"]
            if lost or dropped:
                raise self.refusals.answer_lost(found.id, answer["status"], lost)
            # A status without an answer must not look like an empty answer.
            if answer["status"] not in ("completed", "failed"):
                # The next call reads an unresolved call again.
                session.replay.mark_unresolved(found)
                raise self.refusals.reconcile(found.id, "its recorded answer was not found")
            if (mark := read_marker(found.id, answer["result"])) is not None:
                raise self.refusals.not_recorded(found.id, mark)
            result = self._decoded(found, answer["result"]) if answer["status"] == "completed" else None
            yield from session.acquire()
            session.mark_answered(found.id)
            session.lock.release()
            kept = True
        except ResultNotRecorded:
            # The marker is the answer.
            answered = True
            raise
        finally:
            if not kept and self.key is None:
                session.outbox.returned.append(found)
            if not kept and not answered:
                session.divergence.note_unanswered(found.id)
        if answer["status"] == "failed":
            failed = Failed(answer["error"]["kind"], answer["error"]["message"])
            failed.recorded = True
            raise failed
        return Answer(result, True, found.id)

    def _decoded(self, found: RecordedCall, result: Any) -> Any:
        """Decodes a recorded result. Raises `Invalid` if that fails."""
        if self.decode is None:
            return result
        try:
            return self.decode(result)
        except Exception as error:
            # A cause would show the message of `error` in logs, which may contain the result.
            raise self.refusals.does_not_fit(found.id, error) from None

    # After the effect

    def _record(self, flight: InFlight, result: Any, failure: Failed | None) -> Steps[Answer]:
        """Appends the result of the effect, which is held until it is in the log."""
        session, request = self.session, flight.call.id
        payload, size = Recorder(self.config.redaction, self.tool, request).end(result, failure)
        record = session.writer.records.make(payload)
        kept = Happened.HELD if flight.end(record, size) else Happened.UNRECORDED
        try:
            yield from session.acquire()
        except Error as error:
            raise ran(error, request, kept) from error
        try:
            yield from self._append_result(flight, record, kept)
        finally:
            session.lock.release()
        if failure is not None:
            raise failure
        return Answer(result, False, request)

    def _append_result(self, flight: InFlight, record: Record, kept: Happened) -> Steps[None]:
        session, request = self.session, flight.call.id
        try:
            yield from session.make_ready()
        except Error as error:
            if session.writer.over is None:
                raise ran(error, request, kept) from error
            try:
                yield from session.keep_evidence(record)
            except Error:
                raise ran(error, request, kept) from error
            flight.recorded()
            raise ran(error, request, Happened.EVIDENCE) from error
        try:
            yield from session.append_result(record)
        except Fenced as error:
            flight.recorded()
            raise ran(error, request, Happened.EVIDENCE) from error
        except Error as error:
            if isinstance(error, Invalid | TooLarge):
                flight.unrecordable()
                raise ran(error, request, Happened.UNRECORDED) from error
            raise ran(error, request, kept) from error
        flight.recorded()
        session.mark_answered(request)

    def _unknown(self, flight: InFlight, error: Exception) -> Error:
        """Makes the error of an effect with an unknown outcome: no result is recorded, and the call stays pending."""
        why = f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__
        if not self.safe_to_retry:
            if self.repeatable:
                why += "; it is repeatable, but this server cannot record that, because it lacks the feature `bases`"
            found = self.refusals.reconcile(flight.call.id, why)
            found.happened = Happened.UNRECORDED
            return found
        safe = "its key makes it safe to retry" if self.key is not None else "it is repeatable, so retry it"
        return self.refusals.may_have_happened(flight.call.id, why, safe)
