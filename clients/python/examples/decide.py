"""Decides about payments that may have happened, by the bank's own list `bank.txt`: each line begins with an
order that is paid.

Needs a server: `runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import os
from pathlib import Path
from urllib.parse import quote

import httpx2

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
DEAD_AFTER = float(os.environ.get("DEAD_AFTER", "3600"))  # seconds: after that, no old request can still reach the bank

paid = {line.split()[0] for line in Path("bank.txt").read_text().splitlines()}
with httpx2.Client(base_url=SERVER, timeout=30, trust_env=False) as http:
    query = {"unsafe": "true", "limit": "100", "consistency": "latest"}
    for effect in http.get("/v1/effects", params=query).raise_for_status().json()["effects"]:
        if effect["tool_name"] != "charge" or effect["state"] != "waiting":
            continue  # "running": its process wrote a moment ago, and may still record the result
        if effect["arguments"] in paid:  # a first argument alone is recorded as its value, here the order
            decision = {"decision": "done", "result": "paid", "why": "the bank has the payment"}
        elif (effect["age_millis"] or 0) >= DEAD_AFTER * 1000:
            decision = {"decision": "not_done", "why": "the bank has no such payment"}
        else:
            continue
        decision |= {"who": "decide.py", "revision": effect["revision"], "basis": effect["basis"]}
        path = f"/v1/runs/{quote(effect['run_id'], safe='')}/effects/{quote(effect['id'], safe='')}/resolution"
        answer = http.post(path, json=decision)
        print(effect["run_id"], decision["decision"], answer.status_code)
