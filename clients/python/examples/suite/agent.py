"""The agent under test: it books a flight at AIRLINE. `agent.py RUN FLIGHT`."""

import json
import os
import sys
import urllib.request

import runlog
from runlog import sync


@runlog.tool(key=lambda trip, flight: f"{trip}-{flight}")
def book_flight(call: runlog.Call, trip: str, flight: str) -> dict[str, str]:
    return ask("book", {"flight": flight, "key": call.idempotency_key})


@runlog.tool
def pay(call: runlog.Call, booking: str) -> dict[str, str]:
    return ask("pay", {"booking": booking})


def ask(what: str, body: dict[str, str | None]) -> dict[str, str]:
    request = urllib.request.Request(f"{os.environ['AIRLINE']}/{what}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def main(trip: str, flight: str) -> None:
    with sync.connect(os.environ["RUNLOG_SERVER"], agent="travel-agent") as rl, rl.run(trip) as run:
        booking = book_flight(trip, flight)["booking"]
        run.checkpoint([{"role": "assistant", "content": f"booked {booking}"}])
        pay(booking)
        run.end()
        print(booking)


if __name__ == "__main__":
    main(*sys.argv[1:])
