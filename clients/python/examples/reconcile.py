"""A payment without a key is interrupted: nothing new runs before somebody decides. Sync code.

Needs a server: `runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import os
import uuid

import runlog
from runlog import sync


@runlog.tool(failed_on=(ValueError,))
def pay(call: runlog.Call, euros: int) -> str:
    if euros < 0:
        raise ValueError("a sum is not negative")  # it did not happen: recorded, and raised as Failed from now on
    raise TimeoutError("the bank did not answer")  # it may have happened: nothing is recorded


with (
    sync.connect(os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070"), agent="payer") as rl,
    rl.run(f"payment-{uuid.uuid4()}") as run,
):
    try:
        pay(-1)
    except runlog.Failed as failed:
        print("failed, for good:", failed)
    for _ in range(2):
        try:
            pay(180)
        except runlog.ReconcileRequired as error:
            print(f"{error.happened}, {error.action}: {error}")
