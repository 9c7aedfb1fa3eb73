"""Makes the errors of the gate for a call: it may have happened, its answer is not there, or its effect ran."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._api import Object
from ._replay import PendingCall, pending_call
from .errors import Error, Happened, Invalid, MissingContent, ReconcileRequired, ResultNotRecorded, Stale, Unavailable

_PLACES_MAX = 10
"""The maximum number of places that an error names."""


def shell_command(name: str, operands: Sequence[str], options: str) -> str:
    """A command for a person to copy into a POSIX shell. Operands that begin with `-` follow `--`, after the options."""
    words = shlex.join(operands)
    if any(operand.startswith("-") for operand in operands):
        return f"{name} {options} -- {words}"
    return f"{name} {words} {options}"


@dataclass(frozen=True, slots=True)
class Refusals:
    """The errors of the calls of a tool in a run."""

    run_id: str
    tool: str

    def reconcile(
        self, call: str, why: str, pending: PendingCall | None = None, *, tool: str | None = None
    ) -> ReconcileRequired:
        """Makes the error of a call that must be decided. `tool` names its tool if it is another one than this tool."""
        message = (
            f"call {call} of {tool or self.tool} in run {self.run_id} is pending: {why}; find out whether it happened, then "
            f"decide: {self.decision(call)}"
        )
        return ReconcileRequired(message, call=call, evidence=pending.evidence if pending else (), run_id=self.run_id)

    def decision(self, call: str) -> str:
        """The command that decides."""
        options = "--who NAME --why TEXT --done RESULT_AS_JSON"
        command = shell_command("runlog effects resolve", (self.run_id, call), options)
        return f"`{command}`, or with `--not-done`, `--adopt` or `--give-up` in place of `--done`"

    def changed(self, call: str, record_id: str, now: Object | None) -> Error:
        """Makes the error of a call that has changed since its intent or attempt: a result arrived, or somebody decided about it.
        `now` is its current state; `None` if it has ended."""
        if now is not None and now["class"] != "retry_safe":
            pending = pending_call(now)
            return self.reconcile(call, pending.reason, pending)
        message = (
            f"call {call} of {self.tool} in run {self.run_id} has changed since record {record_id}: its effect was not run; "
            "make the call again"
        )
        return Stale(message, run_id=self.run_id, record_id=call)

    def may_have_happened(self, call: str, why: str, safe: str) -> Unavailable:
        """Makes the error of a call that is safe to repeat."""
        message = f"the effect of call {call} of {self.tool} may have happened: {why}; {safe}"
        return Unavailable(message, happened=Happened.UNRECORDED, run_id=self.run_id, record_id=call)

    def not_recorded(self, call: str, mark: Mapping[str, Any]) -> ResultNotRecorded:
        """Makes the error of a call that ended with a marker in place of its result."""
        message = f"call {call} of {self.tool} in run {self.run_id} is completed and was not run again; its result was not recorded"
        return ResultNotRecorded(f"{message}: {mark.get('message')}", marker=mark, run_id=self.run_id)

    def does_not_fit(self, call: str, error: Exception) -> Invalid:
        """Makes the error of a call whose recorded result cannot be decoded. Its text contains no part of the result."""
        message = (
            f"the recorded result of call {call} of {self.tool} in run {self.run_id} does not fit its type, and the effect was not "
            f"run again; let the type accept older results: {_without_contents(error)}"
        )
        return Invalid(message, run_id=self.run_id, record_id=call)

    def answer_lost(self, call: str, status: str, lost: list[Object]) -> Error:
        """Makes the error of a call whose answer cannot be read."""
        message = (
            f"call {call} of {self.tool} in run {self.run_id} is {status} and was not run again; its recorded answer"
        )
        if lost and all(of["reason"] == "unavailable" for of in lost):
            return Unavailable(f"{message} cannot be read now", run_id=self.run_id, record_id=call)
        why = f"is {lost[0]['reason']} in the content store" if lost else "was removed by a retention horizon"
        return MissingContent(f"{message} {why}", run_id=self.run_id, record_id=call)


def _without_contents(error: Exception) -> str:
    """The name of an error, and for an error of Pydantic each place with the kind of its error. A message may contain contents."""
    pydantic: Any = sys.modules.get("pydantic_core")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return type(error).__name__
    details: Any = error
    places = [
        f"{'.'.join(map(str, detail['loc'])) or 'the result'}: {detail['type']}"
        for detail in details.errors(include_input=False, include_url=False, include_context=False)[:_PLACES_MAX]
    ]
    return f"{type(error).__name__}: {'; '.join(places)}"


def ran(error: Error, request: str, happened: Happened) -> Error:
    """Converts an error for a call whose effect ran."""
    what = {
        Happened.HELD: "its result is held, and recorded by the next operation or by reopening the run",
        Happened.EVIDENCE: "its result was left as evidence",
    }.get(happened, "its result could not be recorded")
    copy = error.copy(message=f"the effect of call {request} ran; {what}: {error.message}", happened=happened)
    copy.record_id = request
    return copy
