"""The shared part of sync and async handles: the core's operations, without input or output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast

from ._api import Api, Object
from ._checks import check_text, is_number
from ._divergence import OnDivergence
from ._effect import Answer, Call
from ._gate import Gate
from ._json import Json
from ._marker import storable
from ._operations import RunOperations
from ._records import new_id
from ._session import BATCH_RECORDS_MAX, Session
from ._settings import Calling
from ._settling import Releasable
from ._texts import type_name
from ._values import to_json
from ._wire import Steps
from .errors import Usage

_OWN = frozenset(
    (
        "tool_call_requested", "tool_call_attempt", "tool_call_completed", "tool_call_failed", "loop_checkpoint",
        "checkpoint_prune", "run_lifecycle", "run_claim", "batch", "stored_payload", "effect_resolution",
    )
)  # fmt: skip
"""Payloads that other methods, servers and operators write."""
_STATUSES = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Recovery:
    """The state of a run after it was claimed."""

    status: str
    """`open`, or how the run ended."""
    resumable: bool
    """Whether the run can resume without a decision or a restored content."""
    reason: str | None
    """Why it is not resumable."""
    messages: list[Any]
    """The messages of the checkpoint to resume at."""
    state: Any
    """Its state."""
    has_checkpoint: bool
    """Whether there is a checkpoint."""
    pending: list[Object]
    """Calls that may have happened, as of the claim: `class`, `reason`, `evidence`, `revision`, …"""
    completed: list[Object]
    """Calls that ended after the checkpoint."""

    @staticmethod
    def of(recovery: Object) -> Recovery:
        """From the server's answer."""
        checkpoint: Mapping[str, Any] = recovery["checkpoint"] or {}
        return Recovery(
            recovery["status"],
            recovery["resumable"],
            recovery["reason"],
            checkpoint.get("messages") or [],
            checkpoint.get("state"),
            recovery["checkpoint"] is not None,
            recovery["pending"],
            recovery["completed"],
        )


OPEN_IT = "use `with rl.run(…) as run` (`async with` for `runlog.connect`), or `rl.open(…)`"


class RunBlock:
    """A block that was not entered: `rl.run(…)` without `with`."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a run has {name!r} once it is open: {OPEN_IT}")


class OnlyAsyncWith:
    """An object for `async with` alone."""

    def __enter__(self) -> NoReturn:
        raise Usage("use `async with`, in a coroutine; in plain code connect with `runlog.sync.connect`")

    def __exit__(self, *_: object) -> None: ...


class OnlyPlainWith:
    """An object for `with` alone."""

    async def __aenter__(self) -> NoReturn:
        raise Usage("use `with` without `async`; in a coroutine connect with `runlog.connect`")

    async def __aexit__(self, *_: object) -> None: ...


class BaseRun(RunOperations):
    """A run that this process claimed. Leaving the handle never ends the run."""

    is_async = False

    def __init__(self, session: Session, recovery: Object) -> None:
        self._session, self._recovery = session, Recovery.of(recovery)

    @property
    def recovery(self) -> Recovery:
        """The state of the run after the claim. A process that reads it resumes at its checkpoint: later calls
        without a key are new, even if the checkpoint covers the same call. Any other process begins at the run's
        start."""
        self._session.replay.at_checkpoint = True
        return self._recovery

    @property
    def id(self) -> str:
        """The run's id."""
        return self._session.run_id

    @property
    def epoch(self) -> int:
        """The epoch that this handle claimed; 0 if the run had ended."""
        return self._session.writer.epoch

    @property
    def checkpoint_id(self) -> str | None:
        """The id of the run's last checkpoint: from the recovery, or taken by this handle."""
        return self._session.base.checkpoint_id

    @property
    def quiet_checkpoint_id(self) -> str | None:
        """As `checkpoint_id`, but ignores checkpoints that this handle took while a call was in flight."""
        return self._session.quiet_checkpoint

    def step(self) -> AbstractContextManager[None]:
        """Counts as a call in flight: use `with run.step()` around calls whose answers enter the messages together.
        A checkpoint inside the step, as an autosave, does not cover these calls."""
        return self._session.recent.call()

    def uncovered_keys(self, tool: str) -> list[str]:
        """The keys of the recorded calls of a tool that `quiet_checkpoint_id` does not cover, as of the claim, in the order of
        their requests."""
        return [key[1] for key in self._session.uncovered if key is not None and key[0] == tool]

    def replayed_keys(self, tool: str) -> list[str]:
        """The keys of the recorded calls of a tool in a run that ended, if this process begins at its start; else none."""
        session = self._session
        return (
            session.replay.keys(tool) if session.writer.ended is not None and not session.replay.at_checkpoint else []
        )

    @property
    def pending(self) -> list[Object]:
        """Calls that may have happened: of earlier processes, and of this handle. `recovery.pending` is as of the claim."""
        return self._session.replay.pending(self._session.outbox.interrupted())

    @property
    def held(self) -> tuple[int, int]:
        """The number of results that are not recorded yet, and their bytes."""
        return self._session.outbox.held()

    def _call(self, tool: str, args: object, effect: Callable[[Call], Any], options: Calling) -> Steps[Answer]:
        return Gate(self._session, tool, args, **options).run(effect)

    def _turn(self, kind: str, content: object) -> Steps[Object]:
        check_text("the kind of a turn", kind)
        redaction, value = self._session.api.config.redaction, to_json(content)
        if redaction is not None:
            value = redaction.json(None, value)
        message = {"type": "conversation_turn", "message_id": new_id(), "kind": kind, "content": value}
        return self._session.append(message)

    def _checkpoint(self, messages: object, state: object, turn: int) -> Steps[None]:
        # A text or a mapping would be taken apart into its characters or keys, a set has no order.
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
            raise Usage(
                f"a checkpoint has a list of messages, not a value of type {type_name(messages)}; pass other data as `state`"
            )
        listed = cast("Sequence[object]", messages)
        return self._session.checkpoint([to_json(message) for message in listed], to_json(state), turn)

    def _batch(self, payloads: Sequence[object]) -> Steps[list[str]]:
        if not 1 <= len(payloads) <= BATCH_RECORDS_MAX:
            raise Usage(f"a batch has 1 to {BATCH_RECORDS_MAX} records, not {len(payloads)}")
        records = [self._session.writer.records.make(self._checked(to_json(payload))) for payload in payloads]
        yield from self._session.batch(records)
        return [str(record["record_id"]) for record in records]

    def _checked(self, payload: Json) -> Mapping[str, Json]:
        if not isinstance(payload, Mapping) or not isinstance(payload.get("type"), str):
            raise Usage("a payload is a JSON object with a `type`")
        if payload["type"] in _OWN:
            raise Usage(f"a {payload['type']} is not written by `batch`")
        redaction = self._session.api.config.redaction
        if redaction is None:
            return payload
        return {name: value if name == "type" else redaction.json(None, value) for name, value in payload.items()}

    def _prune(self, before: int | None, preserve_latest_terminal: bool) -> Steps[Object]:
        return self._session.prune(before, preserve_latest_terminal)

    def _end(self, status: str, reason: object) -> Steps[None]:
        if status not in _STATUSES:
            raise Usage(f"a run ends as one of {', '.join(_STATUSES)}, not {status!r}")
        if not isinstance(reason, str):
            raise Usage(f"the reason of an end is a text, not a value of type {type_name(reason)}; pass a str")
        # The text of an exception may have the name of a file.
        return self._session.end(status, storable(reason))


class AsyncRun(BaseRun):
    """A run whose tools are async."""

    is_async = True


class PlainRun(BaseRun):
    """A run whose tools are plain functions."""


class Locks(Protocol):
    """The part of a driver that a session needs."""

    def lock(self) -> Releasable: ...
    def semaphore(self, permits: int) -> Releasable: ...


def open_session(
    api: Api,
    locks: Locks,
    run_id: str,
    *,
    unless_active: float | None = None,
    from_start: bool = False,
    allow_unresolved: bool = False,
    on_divergence: OnDivergence = "raise",
) -> tuple[Session, Steps[Object]]:
    """A session on a run, and the operation that claims and recovers it."""
    if unless_active is not None and not is_number(unless_active):
        raise Usage(f"unless_active is a number of seconds, not a value of type {type_name(unless_active)}")
    session = Session(
        api,
        run_id,
        locks.lock(),
        locks.semaphore(api.config.calls_max),
        allow_unresolved=allow_unresolved,
        on_divergence=on_divergence,
    )
    return session, session.open(from_start=from_start, unless_active=unless_active)


def recover(api: Api, run_id: str) -> Steps[Recovery | None]:
    """Reads the state of a run, without claiming it."""
    found = yield from api.for_run().recovery(run_id, from_start=False, content=True)
    return Recovery.of(found) if found is not None else None
