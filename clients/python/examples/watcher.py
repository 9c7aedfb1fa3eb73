"""Continues runs whose process died. `watcher.py watch` works until SIGTERM. Without arguments it shows one takeover: an
agent is killed in the middle of a booking, and the watcher finds its run and continues it.

Runlog starts no process. Run this under systemd, in a Kubernetes Deployment or in your worker pool, as many as you like:
of two watchers that claim one run, one continues it. The agent is `trip_agent.py`.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trip_agent import work

import runlog
from runlog import sync

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
PREFIX = os.environ.get("WATCH_PREFIX", "trips/")
"""The runs to watch. Leave out runs that stay open on purpose, such as the threads of a chat."""
SILENT = float(os.environ.get("WATCH_SILENT", "300"))
"""Seconds without a record until a run counts as dead: more than any call of a tool or of the model takes."""
PAUSE = float(os.environ.get("WATCH_PAUSE", "10"))
"""Seconds between two rounds."""
CLAIMS_MAX = 10
"""A run that was claimed so often kills its processes: a person looks at it."""
log = logging.getLogger("watcher")


def silent_runs(rl: sync.Runlog) -> Iterator[dict[str, Any]]:
    """Lists open runs without a recent record, by id."""
    # The age is null if the clock of the log moved back.
    return (run for run in rl.runs(PREFIX, status="open") if (run["age_millis"] or 0) >= SILENT * 1000)


def may_continue(rl: sync.Runlog, found: dict[str, Any]) -> bool:
    """Reads the run without claiming it: a claim is a record, and would make the run look alive."""
    run_id = found["run_id"]
    if found["epoch"] >= CLAIMS_MAX:
        log.error("run %s was claimed %d times; look at it, and end or continue it yourself", run_id, found["epoch"])
        return False
    recovery = rl.recover(run_id)
    if recovery is None or not recovery.resumable:
        log.warning("run %s waits for a decision: runlog recover %s", run_id, run_id)
        return False
    if not recovery.has_checkpoint:
        log.warning("run %s has no checkpoint with its task: start it again with the task", run_id)
        return False
    return True


def continue_silent_runs(rl: sync.Runlog, stop: threading.Event) -> int:
    """Continues each silent run in turn. Returns the number of runs that it ended."""
    ended = 0
    for found in silent_runs(rl):
        if stop.is_set():
            break
        run_id = found["run_id"]
        try:
            if may_continue(rl, found):
                log.info("run %s is continued", run_id)
                with rl.run(run_id, unless_active=SILENT) as run:
                    work(run)
                ended += 1
        except (runlog.Active, runlog.ClaimLost, runlog.Fenced) as error:
            log.info("another process has run %s: %s", run_id, error)
        except runlog.Error as error:
            log.warning("run %s stopped: %s", run_id, error)
        except Exception:
            # The run is still open: once it is silent again, the next round claims it, up to CLAIMS_MAX times.
            log.exception("the agent failed in run %s", run_id)
    return ended


def watch(stop: threading.Event) -> None:
    with sync.connect(SERVER, agent="watcher") as rl:
        while not stop.is_set():
            try:
                continue_silent_runs(rl, stop)
            except runlog.Error as error:
                log.warning("the runs cannot be listed: %s", error)
            stop.wait(PAUSE)


def show() -> None:
    prefix, here = f"trips/{uuid.uuid4()}/", Path(__file__).parent
    ended = subprocess.run([sys.executable, here / "trip_agent.py", f"{prefix}7", "die"], check=False).returncode
    print(f"the agent ended with {ended}", flush=True)
    settings = {"WATCH_PREFIX": prefix, "WATCH_SILENT": "0.3", "WATCH_PAUSE": "0.1"}
    watcher = subprocess.Popen([sys.executable, __file__, "watch"], env={**os.environ, **settings})
    try:
        with sync.connect(SERVER) as rl:
            status, until = "open", time.monotonic() + 60
            while status == "open" and time.monotonic() < until:
                time.sleep(0.2)
                recovery = rl.recover(f"{prefix}7")
                status = recovery.status if recovery else "unknown"
    finally:
        watcher.terminate()
    print(f"the run is {status}; the watcher ended with {watcher.wait(30)}", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if sys.argv[1:] == ["watch"]:
        stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        watch(stopping)
    else:
        show()
