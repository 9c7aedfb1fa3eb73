"""The watcher continues dead runs, and leaves all other runs alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid

import pytest

import runlog
from conftest import TOP
from runlog import sync

EXAMPLES = TOP / "clients" / "python" / "examples"


@pytest.fixture
def watcher(monkeypatch, url):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("RUNLOG_SERVER", url)
    import watcher

    monkeypatch.setattr(watcher, "PREFIX", f"trips/{uuid.uuid4()}/")
    monkeypatch.setattr(watcher, "SILENT", 0.0)
    return watcher


def claims(rl: sync.Runlog, watcher) -> dict[str, int]:
    return {found["run_id"].removeprefix(watcher.PREFIX): found["epoch"] for found in watcher.silent_runs(rl)}


def test_a_watcher_continues_dead_runs_and_claims_no_others(watcher, url):
    @runlog.tool
    def pay(call: runlog.Call) -> str:
        raise TimeoutError("the bank did not answer")

    dead = subprocess.run(
        [sys.executable, EXAMPLES / "trip_agent.py", f"{watcher.PREFIX}dead", "die"],
        env={**os.environ, "RUNLOG_SERVER": url},
        timeout=300,
        check=False,
    )
    assert dead.returncode == 9
    with sync.connect(url) as rl:
        with rl.run(f"{watcher.PREFIX}waits") as run:
            run.checkpoint([{"role": "user", "content": "to London"}])
            with pytest.raises(runlog.ReconcileRequired):
                pay()
        for _ in range(watcher.CLAIMS_MAX):
            rl.open(f"{watcher.PREFIX}kills").checkpoint([{"role": "user", "content": "to London"}])
        rl.open(f"{watcher.PREFIX}without-a-task")
        before = claims(rl, watcher)
        assert watcher.continue_silent_runs(rl, threading.Event()) == 1
        recovery = rl.recover(f"{watcher.PREFIX}dead")
        assert recovery is not None and recovery.status == "completed"
        del before["dead"]
        assert claims(rl, watcher) == before == {"waits": 1, "kills": watcher.CLAIMS_MAX, "without-a-task": 1}


def test_a_watcher_does_not_take_a_run_with_a_recent_record(watcher, url, monkeypatch):
    with sync.connect(url) as rl:
        rl.open(f"{watcher.PREFIX}alive").checkpoint([{"role": "user", "content": "to London"}])
        listed = list(watcher.silent_runs(rl))
        monkeypatch.setattr(watcher, "SILENT", 3600.0)
        assert len(listed) == 1 and list(watcher.silent_runs(rl)) == []
        # It was silent when it was listed, and wrote since.
        monkeypatch.setattr(watcher, "silent_runs", lambda _: listed)
        assert watcher.continue_silent_runs(rl, threading.Event()) == 0
        assert (rl.recover(f"{watcher.PREFIX}alive") or pytest.fail("the run is gone")).status == "open"
