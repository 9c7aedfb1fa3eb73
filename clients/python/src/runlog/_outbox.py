"""Unrecorded results and interrupted calls. The handle's next operation settles them.

    intent acknowledged ─▶ admitted ─▶ running ─▶ ended (its result is held) ─▶ recorded
    dropped there:        never started  abandoned   the result is released

A call has one of `Config.calls_max` slots from before its intent until its result is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from ._api import Object
from ._records import Record
from ._replay import CallKey, PendingCall, RecordedCall

HELD_BYTES_MAX = 64 << 20
"""The maximum bytes of unrecorded results. An empty outbox accepts a result of any size."""


class Slot:
    """A permit of a call. Repeated releases have no effect."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Releases the permit."""
        release, self._release = self._release, None
        if release is not None:
            release()


@dataclass(slots=True)
class HeldResult:
    """The result of an effect that ran, until it is recorded. Its record keeps its id however often it is sent."""

    record: Record
    size: int
    call: RecordedCall
    key: CallKey
    slot: Slot
    released: bool = False
    """Whether its caller has stopped waiting."""


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """An acknowledged intent, or attempt, whose effect this process never started."""

    call: RecordedCall
    key: CallKey
    record_id: str
    position: Object


@dataclass(slots=True)
class Outbox:
    """Results and calls that the handle still has to settle."""

    running: set[str] = field(default_factory=set[str])
    abandoned: list[tuple[CallKey, RecordedCall]] = field(default_factory=list[tuple[CallKey, RecordedCall]])
    """Calls that were dropped while the effect ran: it may have happened."""
    returned: list[RecordedCall] = field(default_factory=list[RecordedCall])
    """Recorded calls that answered a call, but whose answer never reached the agent."""
    never_started: list[NeverStarted] = field(default_factory=list[NeverStarted])
    results: dict[str, HeldResult] = field(default_factory=dict[str, HeldResult])
    """By the record id of the request."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_interrupted(self) -> tuple[list[tuple[CallKey, RecordedCall]], list[RecordedCall]]:
        """Removes and returns the abandoned and the returned calls."""
        with self.lock:
            taken = self.abandoned, self.returned
            self.abandoned, self.returned = [], []
            return taken

    def interrupted(self) -> list[RecordedCall]:
        """The abandoned and the returned calls."""
        with self.lock:
            return [*(call for _, call in self.abandoned), *self.returned]

    def hold(self, held: HeldResult) -> bool:
        """Adds a result, if there is space. Returns whether there was."""
        with self.lock:
            fits = not self.results or self._bytes() + held.size <= HELD_BYTES_MAX
            if fits:
                self.results[held.call.id] = held
            return fits

    def _bytes(self) -> int:
        return sum(held.size for held in self.results.values())

    def held(self) -> tuple[int, int]:
        """The number of unrecorded results, and their bytes."""
        with self.lock:
            return len(self.results), self._bytes()

    def next_released(self) -> HeldResult | None:
        """The oldest result whose caller has stopped waiting."""
        with self.lock:
            return next((held for held in self.results.values() if held.released), None)

    def remove(self, request: str) -> HeldResult | None:
        """Removes the result of a call: it is recorded, or never will be."""
        with self.lock:
            held = self.results.pop(request, None)
        if held is not None:
            held.slot.release()
        return held


class _Stage(Enum):
    ADMITTED = auto()
    RUNNING = auto()
    ENDED = auto()
    DONE = auto()


class InFlight:
    """A call after its intent is acknowledged. When dropped, it notes the state of its effect in the outbox."""

    def __init__(
        self, outbox: Outbox, call: RecordedCall, key: CallKey, admitted_by: tuple[str, Object], slot: Slot
    ) -> None:
        self.call, self.key, self.slot = call, key, slot
        self._outbox, self._admitted_by, self._stage = outbox, admitted_by, _Stage.ADMITTED
        outbox.running.add(call.id)

    def start(self) -> None:
        """Marks the start of the effect."""
        self._stage = _Stage.RUNNING

    def admit_again(self, attempts: int, admitted_by: tuple[str, Object]) -> None:
        """Marks that another attempt is acknowledged."""
        pending = self.call.pending
        self.call = replace(self.call, pending=replace(pending, attempts=attempts) if pending else None)
        self._admitted_by, self._stage = admitted_by, _Stage.ADMITTED

    def end(self, record: Record, size: int) -> bool:
        """Marks the end of the effect, with the result `record`. Returns whether the outbox has space for it."""
        held = HeldResult(record, size, replace(self.call, pending=None), self.key, self.slot)
        if self._outbox.hold(held):
            self._stage = _Stage.ENDED
            return True
        return False

    def recorded(self) -> None:
        """Marks the result as recorded."""
        self._stage = _Stage.DONE
        self._outbox.remove(self.call.id)

    def unrecordable(self) -> None:
        """Marks that the result can never be recorded: the call stays pending."""
        self._outbox.remove(self.call.id)
        self._stage = _Stage.RUNNING

    def drop(self) -> None:
        """Marks that the caller has stopped waiting."""
        stage, self._stage = self._stage, _Stage.DONE
        outbox = self._outbox
        with outbox.lock:
            outbox.running.discard(self.call.id)
            if stage is _Stage.ADMITTED:
                record_id, position = self._admitted_by
                outbox.never_started.append(NeverStarted(self.call, self.key, record_id, position))
            elif stage is _Stage.RUNNING:
                reason = "cancelled while the effect ran: it may have happened"
                attempts = self.call.pending.attempts if self.call.pending else 1
                pending = PendingCall(self.key is not None, reason, attempts)
                outbox.abandoned.append((self.key, replace(self.call, pending=pending)))
            elif stage is _Stage.ENDED and self.call.id in outbox.results:
                outbox.results[self.call.id].released = True
                return
        self.slot.release()
