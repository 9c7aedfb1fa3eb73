"""Agents in Python and in Rust, and the server, killed at random at the demo's desk. `scripts/python.sh kills` kills more."""

from __future__ import annotations

import random

from kills.audit import audit
from kills.fleet import Fleet, report


def test_no_booking_is_made_twice_or_lost_whoever_is_killed(tmp_path, capsys):
    fleet = Fleet(tmp_path, 25, random.randrange(1 << 32), rust=0.3)
    try:
        fleet.run()
        counted, differences = audit(fleet)
        told = report(fleet, 0)
        assert not differences, (told, differences)
        assert fleet.counts["agents killed in mid-call"] >= 3 and fleet.counts["servers killed"] >= 1, told
        assert counted["answers"] > 0 and counted["bookings in the ledger"] >= counted["runs"] // 2, told
    finally:
        with capsys.disabled():
            print(f"\nseed {fleet.seed}: {fleet.killed} kills")
        fleet.stop()
