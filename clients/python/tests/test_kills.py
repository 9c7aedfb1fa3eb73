"""Agents in Python and in Rust, and the server, killed at random at the demo's desk. `scripts/python.sh kills` kills more."""

from __future__ import annotations

import random

from kills.audit import audit
from kills.fleet import Fleet
from kills.graph import Kills


def test_no_booking_is_repeated_or_lost_under_kills(tmp_path, capsys):
    fleet = Fleet(tmp_path, 25, random.randrange(1 << 32), rust=0.3)
    try:
        fleet.run()
        differences, counts = audit(fleet), fleet.counts
        assert not differences, (counts, differences)
        assert counts["agents killed in mid-call"] >= 3 and counts["servers killed"] >= 1, counts
        assert counts["answers"] > 0 and counts["bookings in the ledger"] >= counts["runs"] // 2, counts
    finally:
        with capsys.disabled():
            print(f"\nseed {fleet.seed}: {fleet.killed} kills")
        fleet.stop()


def test_a_graph_has_the_same_result_under_kills(tmp_path):
    kills = Kills(tmp_path, 10, random.randrange(1 << 32))
    try:
        kills.run()
        assert not kills.differences, (kills.seed, kills.counts, kills.differences)
        assert kills.counts["workers killed"] >= 8, (kills.seed, kills.counts)
    finally:
        kills.stop()
