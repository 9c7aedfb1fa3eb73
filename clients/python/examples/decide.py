"""Decides about payments that may have happened, by the bank's own list `bank.txt`: each line begins with an
order that is paid.

Needs a server: `runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import os
from pathlib import Path

from runlog import Conflict, sync

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
DEAD_AFTER = float(os.environ.get("DEAD_AFTER", "3600"))  # seconds: after that, no old request can still reach the bank

paid = {line.split()[0] for line in Path("bank.txt").read_text().splitlines()}
with sync.connect(SERVER) as rl:
    for effect in rl.undecided():
        if effect.tool != "charge" or effect.state != "waiting":
            continue  # "running": its process wrote a moment ago, and may still record the result
        try:
            if effect.arguments in paid:  # a first argument alone is recorded as its value, here the order
                rl.decide(effect, "done", result="paid", who="decide.py", why="the bank has the payment")
                print(effect.run_id, "done")
            elif (effect.details["age_millis"] or 0) >= DEAD_AFTER * 1000:
                rl.decide(effect, "not_done", who="decide.py", why="the bank has no such payment")
                print(effect.run_id, "not_done")
        except Conflict as error:
            print(effect.run_id, error)
