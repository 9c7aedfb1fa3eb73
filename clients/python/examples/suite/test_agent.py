"""Tests an agent that is killed, or whose journal is killed, in the middle of a call: a suite to begin your own
with."""

import runlog
from runlog import sync


def test_a_trip_is_booked_and_paid_once(agents, airline):
    assert agents.run("trip-1", "HAT136")[:2] == (0, "B-1009\n")
    assert airline.requests == ["book", "pay"]


def test_an_agent_that_is_killed_while_it_books_does_not_book_twice(agents, airline):
    airline.deadly = {"book"}
    assert agents.run("trip-1", "HAT136")[0] == -9
    assert agents.run("trip-1", "HAT136")[:2] == (0, "B-1009\n")
    # The airline was asked twice under one key.
    assert airline.requests == ["book", "book", "pay"] and airline.bookings == {"trip-1-HAT136": "B-1009"}


def test_an_agent_that_is_killed_while_it_pays_does_not_pay_again(agents, airline, runlog_journal):
    airline.deadly = {"pay"}
    assert agents.run("trip-1", "HAT136")[0] == -9
    code, _, err = agents.run("trip-1", "HAT136")
    assert code == 1 and "ReconcileRequired" in err
    assert airline.requests == ["book", "pay"]
    with sync.connect(runlog_journal.url) as rl:
        found = rl.recover("trip-1")
    assert [(call["tool_name"], call["class"]) for call in found.pending] == [("pay", "reconcile_required")]


def test_a_journal_that_is_killed_has_what_it_acknowledged(runlog_journal):
    with sync.connect(runlog_journal.url) as rl:
        run = rl.open("trip-1")
        assert run.call("book_flight", {"flight": "HAT136"}, lambda call: "B-1009").result == "B-1009"
        runlog_journal.kill()
        runlog_journal.start()
        assert run.call("pay", {"booking": "B-1009"}, lambda call: "paid").result == "paid"
        assert [call["tool_name"] for call in rl.recover("trip-1").completed] == ["book_flight", "pay"]


def test_each_test_has_an_empty_journal(runlog_journal):
    with sync.connect(runlog_journal.url) as rl:
        assert rl.recover("trip-1") is None
        assert isinstance(rl.open("trip-1"), runlog.sync.Run)
