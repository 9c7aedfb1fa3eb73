"""A booking whose answer was lost: a program asks the airline's desk whether it happened, and decides. Sync code.

Needs the command `runlog` (or its file in RUNLOG_BIN) for the demo's desk, and a server: `runlog serve --local --data
./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import json
import os
import socket
import subprocess
import tempfile
import uuid

import runlog
from runlog import sync
from runlog.testing import find_binary


def ask(request: dict[str, object], *, loses_answer: bool = False):
    """Asks the desk, a line of JSON each way."""
    host, port = desk_address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(connection.makefile().readline())
    if loses_answer:
        raise TimeoutError("the desk did not answer")  # it may have happened: no result is recorded
    return answer["ok"]


@runlog.tool
def book(call: runlog.Call, item: str, date: str, customer: str):
    request = {"op": "book", "item": item, "date": date, "customer": customer, "key": None}
    return ask(request, loses_answer=True)


def reconcile(rl: sync.Runlog, run_id: str) -> None:
    for effect in rl.undecided(run_id):
        booked = ask({"op": "of", "customer": effect.arguments["customer"]})
        why = f"the desk has {len(booked)} bookings of this customer"
        # The process that booked has given up, and this program is the same process: no booking is in flight.
        if booked:
            rl.decide(effect, "done", result=booked[0], who="reconcile.py", why=why, force=True)
        else:
            rl.decide(effect, "not_done", who="reconcile.py", why=why, force=True)


ledger = os.path.join(tempfile.mkdtemp(), "ledger")
desk = subprocess.Popen(
    [find_binary(), "--json", "demo-desk", "--ledger", ledger], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
assert desk.stdin is not None and desk.stdout is not None
desk_address = json.loads(desk.stdout.readline())["listening"]
run_id = f"trip-{uuid.uuid4()}"
with sync.connect(os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070"), agent="travel-agent") as rl:
    [flight, *_] = ask({"op": "flights", "from": "FRA", "to": "LHR", "date": "2026-11-23"})
    trip = {"item": flight["flight"], "date": "2026-11-23", "customer": run_id}
    with rl.run(run_id):
        for _ in range(2):
            try:
                book(**trip)
            except runlog.ReconcileRequired as error:
                print(f"{error.happened}, {error.action}: {error}")
    reconcile(rl, run_id)
    with rl.run(run_id):
        print("recorded:", book(**trip))
    print("bookings at the desk:", len(ask({"op": "of", "customer": run_id})))
desk.stdin.close()
desk.wait(30)
desk.stdout.close()
