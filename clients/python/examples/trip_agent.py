"""An agent that continues where the last process stopped. `trip_agent.py RUN` works; `trip_agent.py RUN die` is killed in
the middle of a booking. The model is a script.

Needs a server: `runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import os
import sys
from typing import Any

import runlog
from runlog import sync

Message = dict[str, Any]


@runlog.tool
def find_flight(call: runlog.Call, to: str) -> str:
    print("`find_flight` runs", flush=True)
    return "HAT136"


@runlog.tool(key=lambda trip, flight: f"{trip}-{flight}")  # the airline ignores a second request with this key
def book_flight(call: runlog.Call, trip: str, flight: str) -> str:
    print("`book_flight` runs, attempt", call.attempt, flush=True)
    if sys.argv[2:] == ["die"]:
        os._exit(9)  # the airline has booked, and the answer is lost
    return "B-1009"


TOOLS = {"find_flight": find_flight, "book_flight": book_flight}


def ask_model(messages: list[Message], trip: str) -> Message:
    print("the model is asked with", len(messages), "messages", flush=True)
    answers: dict[int, Message] = {
        1: {"role": "assistant", "tool": "find_flight", "args": {"to": "LHR"}},
        3: {"role": "assistant", "tool": "book_flight", "args": {"trip": trip, "flight": "HAT136"}},
        5: {"role": "assistant", "content": "You are booked."},
    }
    return answers[len(messages)]


def work(run: sync.Run, task: str | None = None) -> str:
    """Continues a run from its last checkpoint to its end. A new run begins with `task`."""
    messages: list[Message] = list(run.recovery.messages)
    if not messages:
        messages = [{"role": "user", "content": task}]
        run.checkpoint(messages)
    while True:
        if messages[-1]["role"] != "assistant":
            messages.append(ask_model(messages, run.id))
            run.checkpoint(messages)  # before its tool runs: the next process makes the same call
        answer = messages[-1]
        if "tool" not in answer:
            run.end()
            return str(answer["content"])
        result = TOOLS[answer["tool"]](run, **answer["args"])
        messages.append({"role": "tool", "content": result})
        run.checkpoint(messages)


if __name__ == "__main__":
    server = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
    with sync.connect(server, agent="travel-agent") as rl, rl.run(sys.argv[1]) as run:
        print(work(run, "a flight to London, please"), flush=True)
