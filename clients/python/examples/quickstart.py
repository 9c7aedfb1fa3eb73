"""An agent in ten lines. Run it twice: the second process prints the recorded booking and books nothing.

Needs a server: `runlog serve --local --data ./runlog-data`, or its URL in RUNLOG_SERVER.
"""

import asyncio
import os

import runlog


@runlog.tool(key=lambda flight: f"trip-3-{flight}")  # makes a booking that may have happened safe to repeat
async def book_flight(call: runlog.Call, flight: str, seats: int) -> dict[str, str]:
    print("booking with the key", call.idempotency_key)
    return {"booking": "B-1009"}


async def main() -> None:
    server = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
    async with runlog.connect(server, agent="travel-agent") as rl, rl.run("trip-3") as run:
        booked = await book_flight("HAT136", seats=2)
        print(booked)
        await run.checkpoint([{"role": "user", "content": "a flight to London, please"}])


asyncio.run(main())
