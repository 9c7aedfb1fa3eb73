"""Decides which recorded call answers a call that an agent makes, and so whether an effect runs again. Pure.

A call without a key takes the earliest request without a key that has its fingerprint and was not taken yet. A process
that read its recovery resumes at the checkpoint, and takes no request that the checkpoint covers. A call with a key
takes the request with that key in its tool. Without a matching request, the call is new.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ._checks import check_text
from .errors import Usage, is_blank

Object = dict[str, Any]
CallKey: TypeAlias = tuple[str, str] | None
"""The tool and the idempotency key of a call that has one."""
RequestOrder: TypeAlias = tuple[int, int]
"""The `journal_seq` and the occurrence of a request. They order requests of one fingerprint as the log has them: after a skip, void
calls can have one `journal_seq`."""
_APPENDED = 2**32
"""Stands for the occurrence of a request that this process appended. Void calls with its number precede it in the log."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A request whose end is not recorded."""

    retry_safe: bool
    reason: str
    attempts: int
    evidence: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A request in the journal; `pending` is `None` once it has ended."""

    id: str
    fingerprint: str
    pending: PendingCall | None = None
    tool: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """The key belongs to this request, which has other arguments."""

    id: str


def pending_call(pending: Object) -> PendingCall:
    """Reads a pending effect from a recovery."""
    safe = pending["class"] == "retry_safe"
    return PendingCall(safe, pending["reason"], pending["attempts"], tuple(pending["evidence"]))


def recorded_call(found: Object) -> RecordedCall | None:
    """Reads a completed or pending call. `None` for an effect without a fingerprint, which no call of an agent can match."""
    if not found.get("fingerprint"):
        return None
    pending = pending_call(found) if "class" in found else None
    return RecordedCall(found["id"], found["fingerprint"], pending, found["tool_name"])


def request_order(call: Object) -> RequestOrder:
    """The order of a completed or pending call among the requests of its fingerprint."""
    return call["journal_seq"], call.get("occurrence") or 0


def _covers(recovery: Object) -> int:
    """The number that the checkpoint of a recovery covers; 0 without one."""
    return int(_checkpoint(recovery).get("covers_journal_seq") or 0)


def _checkpoint(recovery: Object) -> Object:
    return recovery["checkpoint"] or {}


def call_key(tool: str, key: str | None) -> CallKey:
    """The key of a new call. Raises `Usage` for a key without a visible character, which identifies no call at the receiver, or
    with half a character."""
    if key is None:
        return None
    check_text(f"the idempotency key of {tool}", key)
    if is_blank(key):
        raise Usage(
            f"the idempotency key of {tool} is empty or blank: give a key that only this call has, or None for a call without one"
        )
    return tool, key


def key_of(call: Object) -> CallKey:
    """The key of a completed or pending call. An empty key, which older clients recorded, counts as no key."""
    key = call.get("idempotency_key")
    return (call["tool_name"], key) if key else None


class Replay:
    """The recorded calls of a run that a resumed agent has not requested yet."""

    def __init__(self, recovery: Object) -> None:
        self._keyless: defaultdict[str, deque[RecordedCall]] = defaultdict(deque)
        self._keyed: dict[tuple[str, str], RecordedCall] = {}
        self._unique: dict[str, str] = {}
        """Requests of unique calls that this process made or took, by fingerprint."""
        self._unanswered: dict[str, RequestOrder] = {}
        self._unresolved: dict[str, str] = {}
        """The tools of pending requests that block new effects, by request."""
        self._used: dict[str, RequestOrder | None] = {}
        """Requests without a key that have answered a call of this agent. They answer no other call, even if the journal refuses
        their result or a skip voids it, so that they are pending again."""
        self._details: dict[str, Object] = {}
        """The pending requests in the journal, as last read."""
        self._covered: dict[str, RequestOrder] = {}
        """Requests without a key that the checkpoint covers as answered and that were not taken yet. A process that does not
        resume there starts at the run's beginning, and has not received their answers."""
        self.at_checkpoint = False
        """Whether the process resumes at the checkpoint."""
        self.took_covered = False
        """Whether the last request that was taken has no key and is covered by the checkpoint."""
        self.covers = _covers(recovery)
        """The number that the checkpoint covers; 0 without one."""
        self._listed: frozenset[str] = frozenset(_checkpoint(recovery).get("unanswered") or ())
        """The requests that the checkpoint lists as unanswered."""
        self.position: Object = recovery.get("position") or {}
        """The run's last record as of the recovery."""
        self.lacks_covered = self.covers > 0
        """Whether `add_covered` must add the requests that the checkpoint covers before one of them can be found."""
        for pending in recovery["pending"]:
            # Possibly no call can match it, and no new effect runs until it is decided.
            self._mark_uncertain(pending)
        found: list[tuple[RequestOrder, CallKey, RecordedCall]] = [
            (request_order(each), key_of(each), call)
            for each in [*recovery["completed"], *recovery["pending"]]
            if (call := recorded_call(each)) is not None
        ]
        self._uncovered = {call.id for _, _, call in found}
        covered = {pending["id"] for pending in recovery["pending"] if self._has_answered(pending)}
        for order, key, call in sorted(found, key=lambda entry: entry[0]):
            (self._covered if call.id in covered else self._unanswered)[call.id] = order
            if key is not None:
                self._keyed.setdefault(key, call)
            else:
                self._keyless[call.fingerprint].append(call)

    def needs_covered(self, key: CallKey) -> bool:
        """Whether the checkpoint may cover a call: a key identifies its call forever, and a process may start
        at the run's beginning."""
        return self.lacks_covered and (key not in self._keyed if key is not None else not self.at_checkpoint)

    def add_covered(self, recovery: Object) -> None:
        """Adds the requests that the checkpoint covers, from a recovery of the whole run. A skip may have voided an end since the
        process opened the run, so that a request is pending."""
        self.lacks_covered = False
        keyed: dict[tuple[str, str], RecordedCall] = {}
        found: defaultdict[str, list[RecordedCall]] = defaultdict(list)
        for each in sorted([*recovery["completed"], *recovery["pending"]], key=request_order):
            if each["journal_seq"] > self.covers or each["id"] in self._uncovered:
                continue
            if "class" in each:
                self._mark_uncertain(each)
            call, key = recorded_call(each), key_of(each)
            if call is None:
                continue
            if key is not None:
                keyed.setdefault(key, call)
            else:
                self._covered[call.id] = request_order(each)
                found[call.fingerprint].append(call)
        self._keyed = {**keyed, **{key: call for key, call in self._keyed.items() if key not in keyed}}
        for fingerprint, calls in found.items():
            calls.extend(self._keyless[fingerprint])
            self._keyless[fingerprint] = deque(sorted(calls, key=lambda call: self._order(call.id)))

    def add_keyed(self, key: tuple[str, str], call: RecordedCall) -> None:
        """Adds the request with a key, which the checkpoint covers."""
        self._keyed.setdefault(key, call)

    def mark_unique(self, call: RecordedCall) -> None:
        """From now on, the request answers every unique call with its fingerprint."""
        self._unique[call.fingerprint] = call.id

    def take(self, key: CallKey, fingerprint: str, *, unique: bool = False) -> RecordedCall | KeyConflict | None:
        """Finds the recorded call that answers a call; `None` for a new call. A recorded call without a key is
        removed, since it answers once, unless the call is unique."""
        self.took_covered = False
        if key is not None:
            found = self._keyed.get(key)
            return KeyConflict(found.id) if found and found.fingerprint != fingerprint else found
        self._skip_covered()
        queue = self._keyless.get(fingerprint) or deque()
        # A further unique call is the same call, and takes no other one.
        same = self._unique.get(fingerprint) if unique else None
        taken = next((call for call in queue if same in (None, call.id)), None)
        if taken is None:
            return RecordedCall(same, fingerprint) if same is not None else None
        queue.remove(taken)
        if taken.id in self._covered:
            self._unanswered[taken.id] = self._covered.pop(taken.id)
            self.took_covered = True
        return taken

    def _skip_covered(self) -> None:
        """Removes requests that the checkpoint covers, if the process resumes there."""
        if not self.at_checkpoint or not self._covered:
            return
        covered, self._covered = self._covered, {}
        for fingerprint, queue in self._keyless.items():
            self._keyless[fingerprint] = deque(call for call in queue if call.id not in covered)

    def keys(self, tool: str) -> list[str]:
        """The keys of the recorded calls of a tool."""
        return [key for of, key in self._keyed if of == tool]

    def put_back(self, key: CallKey, call: RecordedCall) -> None:
        """Puts back a request whose answer did not reach the agent. It answers a call again, in the order of the log."""
        if (order := self._used.pop(call.id, None)) is not None:
            self._unanswered[call.id] = order
        if key is not None:
            self._keyed[key] = call
            return
        queue = self._keyless[call.fingerprint]
        order = self._order(call.id)
        queue.insert(next((at for at, other in enumerate(queue) if self._order(other.id) > order), len(queue)), call)

    def _order(self, call_id: str) -> RequestOrder:
        return self._unanswered.get(call_id) or self._covered.get(call_id) or (0, 0)

    def restore(self, key: CallKey, call: RecordedCall) -> None:
        """As `put_back`, whether or not the request was taken before."""
        self._remove(call.id, call.fingerprint)
        if call.pending is not None and not call.pending.retry_safe:
            self._unresolved[call.id] = call.tool
        else:
            self._unresolved.pop(call.id, None)
        self.put_back(key, call)

    def forget(self, call_id: str) -> None:
        """Removes a request that was refused."""
        self._unanswered.pop(call_id, None)
        self._unresolved.pop(call_id, None)
        self._keyed = {key: call for key, call in self._keyed.items() if call.id != call_id}
        self._unique = {found: known for found, known in self._unique.items() if known != call_id}
        for fingerprint in list(self._keyless):
            self._remove(call_id, fingerprint)

    def _remove(self, call_id: str, fingerprint: str) -> None:
        queue = self._keyless.get(fingerprint)
        if queue is not None:
            self._keyless[fingerprint] = deque(call for call in queue if call.id != call_id)

    def adopt(self, recovery: Object, busy: Callable[[str], bool]) -> None:
        """Adds requests that are pending in the journal and missing here, except requests of calls in flight. A request whose
        answer the agent has only blocks new effects."""
        for pending in recovery["pending"]:
            call = recorded_call(pending)
            if busy(pending["id"]):
                continue
            self._details[pending["id"]] = pending
            if call is None or self._is_used(call, pending):
                self._mark_uncertain(pending)
                continue
            self._uncovered.add(call.id)
            if call.id not in self._covered:
                self._unanswered.setdefault(call.id, request_order(pending))
            key = key_of(pending)
            queue = self._keyless.get(call.fingerprint, ())
            known = key in self._keyed if key is not None else any(known.id == call.id for known in queue)
            if not known:
                self.restore(key, call)

    def _is_used(self, call: RecordedCall, pending: Object) -> bool:
        is_used = call.id in self._used or (self.at_checkpoint and self._has_answered(pending))
        return is_used and self._unique.get(call.fingerprint) != call.id

    def _has_answered(self, pending: Object) -> bool:
        """Whether the checkpoint covers a pending request without a key as answered. The journal refused its result later, or a
        skip voids it."""
        is_covered: bool = pending["journal_seq"] <= self.covers and pending["id"] not in self._listed
        return is_covered and key_of(pending) is None

    def add(self, journal_seq: int, key: CallKey, call: RecordedCall) -> None:
        """Adds a new request."""
        self._unanswered[call.id] = (journal_seq, _APPENDED)
        if key is not None:
            self._keyed[key] = call

    def mark_answered(self, call_id: str) -> None:
        """Marks that the agent has received the request's answer."""
        order = self._unanswered.pop(call_id, None)
        self._unresolved.pop(call_id, None)
        for key, call in self._keyed.items():
            if call.id == call_id:
                self._keyed[key] = replace(call, pending=None)
                break
        else:
            self._used.setdefault(call_id, order)

    def mark_unresolved(self, call: RecordedCall) -> None:
        """Marks a request that may be pending, until the journal's state is read."""
        self._unresolved[call.id] = call.tool

    def _mark_uncertain(self, pending: Object) -> None:
        self._details[pending["id"]] = pending
        if pending["class"] != "retry_safe":
            self._unresolved[pending["id"]] = pending["tool_name"]

    def unanswered(self) -> list[str]:
        """Requests whose answer the agent has not received, oldest first."""
        self._skip_covered()
        listed = self._unanswered | self._covered
        return sorted(listed, key=listed.__getitem__)

    def unresolved(self) -> tuple[str, str] | None:
        """A pending request that blocks new effects, if any, and its tool."""
        return min(self._unresolved.items(), default=None)

    def pending(self, interrupted: Iterable[RecordedCall]) -> list[Object]:
        """The requests that may have happened, oldest first, and the calls interrupted since the last operation. Requests of this
        process lack members that the journal adds, as `revision`."""
        calls = [*self._keyed.values(), *(call for queue in self._keyless.values() for call in queue), *interrupted]
        known = {call.id: call for call in calls}
        found: list[Object] = [self._details[of] for of in self._unresolved if of in self._details and of not in known]
        for call in known.values():
            if (pending := call.pending) is not None:
                of_call: Object = {"id": call.id, "tool_name": call.tool, "fingerprint": call.fingerprint}
                state = {
                    "class": "retry_safe" if pending.retry_safe else "reconcile_required",
                    "reason": pending.reason,
                    "attempts": pending.attempts,
                    "evidence": list(pending.evidence),
                }
                found.append(of_call | self._details.get(call.id, {}) | state)
        return sorted(found, key=lambda of: self._unanswered.get(of["id"], (0, 0)))

    def has_revocable(self, key: CallKey) -> bool:
        """Whether a pending request may run again only by a decision, which evidence can revoke, or the call with `key` is pending:
        somebody may have decided about it."""
        calls = [call for queue in self._keyless.values() for call in queue]
        if key is not None and key in self._keyed:
            calls.append(self._keyed[key])
        return any(call.pending is not None and call.pending.retry_safe for call in calls)

    def refresh(self, recovery: Object) -> None:
        """Updates requests from the journal: decisions and evidence may have been recorded in the meantime, and a skip may have
        voided an end."""
        still = {pending["id"]: pending for pending in recovery["pending"]}
        self._details = still
        self._unresolved = {
            call_id: tool
            for call_id, tool in self._unresolved.items()
            if call_id in still and still[call_id]["class"] != "retry_safe"
        }

        def refreshed(call: RecordedCall) -> RecordedCall:
            pending = still.get(call.id)
            if pending is not None and pending["class"] != "retry_safe":
                self._unresolved[call.id] = call.tool
            return replace(call, pending=pending_call(pending) if pending else None)

        for fingerprint, queue in self._keyless.items():
            self._keyless[fingerprint] = deque(refreshed(call) for call in queue)
        self._keyed = {key: refreshed(call) for key, call in self._keyed.items()}
