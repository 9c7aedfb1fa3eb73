"""Errors: their kind, the caller's reaction (`action`), and the possible side effects (`happened`)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that a terminal acts on or that a person cannot see, without tab and line end; as `cli/src/text.rs` has them."""
_BLANK = re.compile(HIDDEN.pattern.removesuffix("]") + r"\s]*")


def is_blank(text: str) -> bool:
    """Whether a text has no visible character, by the rule of the server (`schemas/src/hidden.rs`)."""
    return _BLANK.fullmatch(text) is not None


def visible(text: str) -> str:
    """A text for people: hidden characters are escaped as in a literal of Python."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Action(StrEnum):
    """The caller's reaction to an error."""

    RETRY = "retry"
    """The same call may succeed later."""
    FIX_THE_INPUT = "fix_the_input"
    """The input is wrong. The handle stays usable."""
    CREDENTIALS = "credentials"
    """Pass a token or a client certificate that the server accepts for this."""
    REOPEN = "reopen"
    """`Run.reopen`, or the next operation, looks up the records in the log. Without a handle, open the run again."""
    STOP = "stop"
    """Another process writes the run: stop working on it. A takeover is a decision, not a retry."""
    OPERATOR = "operator"
    """A person must investigate or decide: `runlog recover`, `runlog effects resolve`, `runlog doctor`."""


class Happened(StrEnum):
    """The possible side effects of a failed operation."""

    NOTHING = "nothing"
    """No record was appended and no effect ran."""
    UNKNOWN = "unknown"
    """A record may be in the log. No effect ran."""
    HELD = "held"
    """The effect ran. The handle holds its result until its next operation or `Run.reopen` records it."""
    EVIDENCE = "evidence"
    """The effect ran, and the run was lost or ended: the result is in the log as evidence for the decision on the call."""
    UNRECORDED = "unrecorded"
    """The effect may have happened, and the log does not contain its result: the call stays pending."""


class Error(Exception):
    """A failed operation on the journal. `kind` has the server's name for it."""

    kind = "internal"
    action = Action.OPERATOR

    def __init_subclass__(cls, *, kind: str | None = None, action: Action | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.kind, cls.action = kind or cls.kind, action or cls.action

    def __init__(
        self,
        message: str,
        *,
        action: Action | None = None,
        happened: Happened = Happened.NOTHING,
        run_id: str | None = None,
        record_id: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.action = type(self).action if action is None else action
        self.happened = happened
        self.run_id = run_id
        self.problem: Mapping[str, Any] = problem or {}
        """The members of the server's problem document, such as `topic`, `partition`, `offset` and `lag`."""
        self.record_id = record_id if record_id is not None else self.problem.get("record_id")

    def __str__(self) -> str:
        return visible(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)

    def copy(self, *, message: str | None = None, happened: Happened = Happened.NOTHING) -> Error:
        """The same error for another operation, or with more context."""
        copy = _rebuilt(type(self), self.args, self.__dict__)
        copy.happened = happened
        if message is not None:
            copy.message, copy.args = message, (message,)
        return copy


def _rebuilt(kind: type[Error], args: tuple[Any, ...], members: Mapping[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


class Invalid(Error, kind="invalid", action=Action.FIX_THE_INPUT):
    """The request is wrong. Nothing was appended."""


class Usage(Invalid, kind="usage"):
    """The request is not valid, or the configuration is wrong."""


class TypeNotAllowed(Usage):
    """A checkpoint or a recorded result has a value of a type that the list of the reader or of the writer lacks. The
    type was not called, and no value was stored."""


class Unauthenticated(Error, kind="unauthenticated", action=Action.CREDENTIALS):
    """The server requires a token or a client certificate, or does not accept the credential that was sent."""


class Forbidden(Error, kind="forbidden", action=Action.CREDENTIALS):
    """The server does not allow this. Nothing happened."""


class NotFound(Error, kind="not_found", action=Action.FIX_THE_INPUT):
    """The resource does not exist."""


class TooLarge(Error, kind="too_large", action=Action.FIX_THE_INPUT):
    """The record, or the checkpoint's list, is too large. Nothing was appended."""


class ClaimLost(Error, kind="claim_lost", action=Action.STOP):
    """Another process claimed the run."""


class Fenced(Error, kind="fenced", action=Action.STOP):
    """Another process took the run over; the journal refuses this process's records."""

    is_stale_write_owner_error = True
    """Marks the error for LangGraph's conformance tests of write ownership, which accept any class."""


class Conflict(Error, kind="conflict", action=Action.REOPEN):
    """The journal knows more than the operation assumed, or the run has ended.

    If `problem` has the reason `active`, the process of the effect may still record the result, and nothing was decided.
    `age_millis` in `problem` is the age of the last record of its run's writer; an older server does not send it."""


class Diverged(Conflict, action=Action.FIX_THE_INPUT):
    """A new call without a key, although recorded calls after the checkpoint were not asked for: it may repeat one of
    them, as after a change of its arguments. Nothing ran. `calls` are these recorded calls, oldest first."""

    def __init__(self, message: str, *, calls: Sequence[str], run_id: str | None = None) -> None:
        super().__init__(message, run_id=run_id)
        self.calls = tuple(calls)


class MissingContent(Error, kind="missing_content"):
    """Content that the journal refers to is lost or was removed. The effect was not run again."""


class ResultNotRecorded(Error, kind="result_not_recorded"):
    """The call ended, and its result could not be recorded. The effect was not run again.

    The process that ran the effect has received the result. `marker` names the call (`call`), why the result was
    left out (`reason`, `message`), its `type`, and the `bytes` of its JSON; the last two are `None` if unknown."""

    def __init__(self, message: str, *, marker: Mapping[str, Any], run_id: str | None = None) -> None:
        super().__init__(message, run_id=run_id, record_id=str(marker["call"]))
        self.marker = marker


class Overloaded(Error, kind="overloaded", action=Action.RETRY):
    """The server is overloaded. Nothing happened."""


class Internal(Error, kind="internal"):
    """A defect or a damaged index; see the server's log."""


class PartitionStopped(Error, kind="partition_stopped"):
    """The partition stopped at a record; an operator must act."""


class Unavailable(Error, kind="unavailable", action=Action.RETRY):
    """The server did not answer, or refused the request for now.

    With the action `OPERATOR`, every named server reads a mirror of the journal: name a server of the home. With the reason
    `not_here` in `problem`, no named server holds the run's partition: name one of the servers that the message lists. Nothing
    happened in either case."""


class Stale(Error, kind="stale", action=Action.RETRY):
    """The index did not reach the requested freshness in time."""


class Active(Unavailable):
    """The run was not taken over, because another process wrote to it a moment ago."""

    def __init__(self, message: str, *, writer_id: str, epoch: int, age: float, run_id: str) -> None:
        super().__init__(message, run_id=run_id)
        self.writer_id = writer_id
        self.epoch = epoch
        self.age = age
        """Seconds since the run's last record."""


class Forked(Error, kind="usage", action=Action.STOP):
    """A handle was used in a forked child of the process that opened it: open the run in the child."""


class ReconcileRequired(Error, kind="reconcile_required", action=Action.OPERATOR):
    """The call may have happened, and repeating it is not safe. Investigate, then run `runlog effects resolve`.

    If `problem` has the reason `doubt`, the run may have done more than the journal knows, because the journal's home was lost: no
    call of the run is repeated before an operator has checked its effects and runs `runlog home accept`. `call` is then empty."""

    def __init__(
        self,
        message: str,
        *,
        call: str,
        evidence: Sequence[Mapping[str, Any]] = (),
        happened: Happened = Happened.NOTHING,
        run_id: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, happened=happened, run_id=run_id, record_id=call, problem=problem)
        self.call = call
        """The record id of the request: `runlog effects resolve RUN CALL`."""
        self.evidence = tuple(evidence)
        """Results that the journal refused and kept, oldest first."""


_KINDS: dict[str, type[Error]] = {
    kind.kind: kind
    for kind in (
        Invalid, Usage, Unauthenticated, Forbidden, NotFound, TooLarge, ClaimLost, Fenced, Conflict, MissingContent,
        Overloaded, Internal, PartitionStopped, Unavailable, Stale,
    )
}  # fmt: skip


def of_problem(problem: Mapping[str, Any]) -> Error:
    """Makes the error for a problem document (RFC 9457) with a `kind`."""
    kind, detail = str(problem.get("kind")), str(problem.get("detail") or problem.get("title") or "")
    if kind == ReconcileRequired.kind:
        return ReconcileRequired(detail, call=str(problem.get("record_id") or ""), problem=problem)
    known = _KINDS.get(kind)
    if known is None:
        status = problem.get("status")
        by_status = {401: Unauthenticated, 403: Forbidden}.get(status, Error) if isinstance(status, int) else Error
        error = by_status(detail, problem=problem)
        error.kind = kind
        return error
    if is_mirror(problem):
        return known(detail, action=Action.OPERATOR, problem=problem)
    if is_not_here(problem):
        return known(detail, action=Action.FIX_THE_INPUT, problem=problem)
    return known(detail, problem=problem)


def is_mirror(problem: Mapping[str, Any]) -> bool:
    """Whether a server refused a request because it reads a mirror of the journal. The request had no effect, and only a server
    of the home accepts it."""
    return problem.get("kind") == Unavailable.kind and problem.get("reason") == "mirror"


def is_not_here(problem: Mapping[str, Any]) -> bool:
    """Whether a server refused a request because other servers hold the run's partition. The request had no effect."""
    return problem.get("kind") == Unavailable.kind and problem.get("reason") == "not_here"


def instances_of(problem: Mapping[str, Any]) -> list[str]:
    """The URLs of the servers that hold the partition, in a problem with the reason `not_here`."""
    elsewhere = problem.get("not_here")
    found = cast("Mapping[str, Any]", elsewhere).get("instances") if isinstance(elsewhere, dict) else None
    return [str(url).rstrip("/") for url in cast("list[Any]", found)] if isinstance(found, list) else []


def is_doubt(error: Error) -> bool:
    """Whether a server refused to continue a run that the journal's lost home may have continued. No record was appended."""
    return error.kind == ReconcileRequired.kind and error.problem.get("reason") == "doubt"


class Failed(Exception):
    """A tool raises it for a final failure: the effect did not happen. It is recorded, and the same call raises it again."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.recorded = False
        """Whether the failure comes from the journal, and the effect did not run now."""


class Unknown(Exception):
    """A tool raises it if it does not know whether the effect happened. Nothing is recorded, and the call stays pending."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class TimedOut(Unknown, TimeoutError):
    """The time limit of a tool cut its effect, which may have happened."""
