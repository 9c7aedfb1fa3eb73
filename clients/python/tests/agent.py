"""An agent in a process of its own: `agent.py URL RUN LEDGER MODE`. Each effect is a line in LEDGER.

MODE: `die` kills the process in the middle of the booking, `die-paying` in the middle of the payment. `hold` prints `paying` and
waits for a line on stdin. Any other mode does all steps.
"""

import os
import pathlib
import signal
import sys

import runlog
from runlog import sync

url, run_id, ledger, mode = sys.argv[1:]
ledger_file = pathlib.Path(ledger)


def note(what: str) -> None:
    with ledger_file.open("a") as file:
        file.write(what + "\n")


@runlog.tool
def find(call: runlog.Call, args: dict) -> dict:
    note("find")
    return {"flight": "HAT136"}


@runlog.tool(key=lambda args: f"order-{args['order']}")
def book(call: runlog.Call, args: dict) -> dict:
    note(f"book {call.idempotency_key} {call.attempt}")
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"booking": "B-1009"}


@runlog.tool
def pay(call: runlog.Call, args: dict) -> str:
    note("pay")
    if mode == "die-paying":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "hold":
        print("paying", flush=True)
        sys.stdin.readline()
    return "paid"


with sync.connect(url, agent="tester") as rl:
    try:
        with rl.run(run_id) as run:
            print(find({"to": "LHR"}), flush=True)
            run.checkpoint([{"role": "tool", "content": "HAT136"}], {"step": "found"})
            print(book({"order": 7}), flush=True)
            print(pay({"sum": 180}), flush=True)
            run.end()
            print("done", flush=True)
    except runlog.Error as error:
        print(type(error).__name__, error.happened, error.action, flush=True)
