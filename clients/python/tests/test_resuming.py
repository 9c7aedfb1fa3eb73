"""A process that continues a run: what it reads, and what it may do before it made the recorded calls again."""

from __future__ import annotations

import pytest

import runlog
from faults import SyncFaults
from runlog import _api as api
from runlog import sync


def never(call):
    pytest.fail("ran")


def test_opening_reads_no_call_that_the_checkpoint_covers_and_a_key_finds_its_call_all_the_same(
    url, run_id, monkeypatch
):
    monkeypatch.setattr(api, "RECOVERY_PAGE", 4)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        run.call("pay", {"sum": 1}, lambda call: "paid", key="pay-1")
        for n in range(12):
            run.call("tick", {"n": n}, lambda call: call.id)
        run.checkpoint([{"role": "user", "content": "tick"}])
    config = runlog.Config(url)
    transport = SyncFaults(config)
    with sync.Runlog(config, transport) as rl, rl.run(run_id) as run:
        opened = transport.count
        assert run.recovery.messages and opened <= 3
        assert run.call("pay", {"sum": 1}, never, key="pay-1").recorded
        with pytest.raises(runlog.Conflict, match="other arguments"):
            run.call("pay", {"sum": 2}, never, key="pay-1")
        assert not run.call("tick", {"n": 0}, lambda call: call.id).recorded
    with sync.connect(url) as rl, rl.run(run_id) as run:
        # A process that begins at the start finds its calls in their order.
        assert all(run.call("tick", {"n": n}, never).recorded for n in range(12))
        assert run.call("tick", {"n": 0}, never).recorded
        run.checkpoint([])
