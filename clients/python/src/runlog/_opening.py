"""Claims a run that no other process is active in."""

from __future__ import annotations

from ._api import NO_RECORDS, Object
from ._wire import Steps
from ._writer import Writer
from .errors import Active, Conflict


def claim_inactive(writer: Writer, head: Object | None, within: float) -> Steps[None]:
    """Claims the run as it was read, so that a process that writes to it meanwhile is not fenced. An ended run is not
    claimed."""
    has_only_if = "only_if" in (yield from writer.api.features())
    for last in (False, False, True):
        if head is not None:
            _check_inactive(writer.run_id, head, within)
            if head["status"] != "open":
                return
        only_if = (head["hash"] if head else NO_RECORDS) if has_only_if else None
        try:
            return (yield from writer.claim_after(head["epoch"] if head else 0, only_if))
        except Conflict:
            # The run has got a record: is its process active?
            head = yield from writer.api.run(writer.run_id)
            if last or not has_only_if:
                raise


def _check_inactive(run_id: str, head: Object, within: float) -> None:
    millis = head.get("age_millis")
    age = (millis or 0) / 1000
    if head["status"] in ("completed", "failed", "cancelled") or age >= within:
        return
    when = f"appended its last record {age:.1f} s ago"
    if millis is None:
        when = (
            "has a last record whose time is in the future; if its process is dead, open the run without the age check"
        )
    message = (
        f"run {run_id} is active and was not taken over: writer {head['writer_id']} in epoch {head['epoch']} {when}"
    )
    raise Active(message, writer_id=head["writer_id"], epoch=head["epoch"], age=age, run_id=run_id)
