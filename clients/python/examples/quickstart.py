"""The loop of an agent: open the run, read where the process before stopped, continue there, take checkpoints.

Run it with DIE_IN=CDG, and then without: the second process continues in the middle of the trip. Needs a server:
`runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import asyncio
import os
import signal

import runlog

CITIES = ["LHR", "CDG", "FCO"]


@runlog.tool(key=lambda city: f"trip-3-{city}")  # makes a booking that may have happened safe to repeat
async def book_flight(call: runlog.Call, city: str) -> str:
    print(f"booking {city} with the key {call.idempotency_key}, attempt {call.attempt}", flush=True)
    if os.environ.get("DIE_IN") == city:
        os.kill(os.getpid(), signal.SIGKILL)  # the answer never arrives
    return f"B-{city}"


async def main() -> None:
    server = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
    async with runlog.connect(server, agent="travel-agent") as rl, rl.run("trip-3") as run:
        messages = run.recovery.messages  # of the last checkpoint; empty in a new run
        for city in CITIES[len(messages) :]:
            booking = await book_flight(city)
            messages.append({"role": "tool", "content": booking})
            await run.checkpoint(messages)
        print([message["content"] for message in messages])


asyncio.run(main())
