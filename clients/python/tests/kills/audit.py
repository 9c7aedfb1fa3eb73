"""The desk's ledger, the answers that agents got, and the journal, compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

from conftest import command

from .fleet import Fleet
from .processes import read_lines

_BOOKING = ("confirmation", "item", "date", "customer")


def audit(fleet: Fleet) -> list[str]:
    """A sentence for each difference. Adds to the fleet's counts."""
    ledger = [{name: b[name] for name in _BOOKING} for b in fleet.desk.bookings()]
    differences: list[str] = []
    sold = Counter((b["item"], b["date"], b["customer"]) for b in ledger)
    differences += [f"booked {count} times: {what}" for what, count in sold.items() if count > 1]
    journal, calls = _journal(fleet, differences)
    by_confirmation = {b["confirmation"]: b for b in ledger}
    for run_id, booking in journal:
        if by_confirmation.pop(booking["confirmation"], None) != booking:
            differences.append(f"{run_id} has a booking that the ledger has not, or has twice: {booking}")
    differences += [f"no run has this booking of the ledger: {booking}" for booking in by_confirmation.values()]
    answers = read_lines(fleet.answers)
    for answer in answers:
        call = calls.get((answer["run"], answer["call"]))
        if call is None or call["status"] != "completed" or call["result"] != answer["result"]:
            differences.append(f"an agent got {answer}, the journal has {call}")
    verified = command(fleet.server.url, "verify", "--json")
    if verified.returncode != 0:
        differences.append(f"verify: {verified.stdout}{verified.stderr}")
    fleet.counts |= Counter({"bookings in the ledger": len(ledger), "bookings in the journal": len(journal)})
    fleet.counts |= Counter({"answers": len(answers), "calls": len(calls), "runs": len(fleet.trips)})
    return differences


def _journal(fleet: Fleet, differences: list[str]) -> tuple[list[tuple[str, Any]], dict[tuple[str, str], Any]]:
    """The bookings that the journal says are done, and all calls."""
    bookings: list[tuple[str, Any]] = []
    calls: dict[tuple[str, str], Any] = {}
    for trip in fleet.trips:
        found = fleet.ask(fleet.api.recovery(trip.run_id, from_start=True, content=False))
        if found is None or found["status"] != "completed" or found["pending"]:
            differences.append(f"{trip.run_id} is {found and (found['status'], found['pending'])}")
            continue
        for done in found["completed"]:
            call = calls[trip.run_id, done["id"]] = fleet.ask(fleet.api.call(trip.run_id, done["id"]))
            if done["tool_name"].startswith("book_") and call["status"] == "completed":
                bookings.append((trip.run_id, call["result"]))
    return bookings, calls
