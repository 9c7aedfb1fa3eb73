"""The driver: one loop, no threads, so that it can fork agents that cost no start of an interpreter.

A slot has a trip, and one process after another that works on it. Some are killed while the desk holds their booking, the
others at a random moment. A pending call without a key of a dead process is decided as an operator would decide it: by asking
the desk.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from conftest import BINARY, ENVIRONMENT
from runlog import Config, _api
from runlog._drive import SyncDriver
from runlog._http import SyncHttp
from runlog._wire import Request

from . import agent
from .desk import Desk, Held
from .node import InNode, Prepared
from .processes import BROKEN, DONE, RECONCILE, STEP, STUCK_AFTER, UNAVAILABLE, Forked, Server
from .trips import Trip

LIFE_MAX = 0.8
"""Seconds until a process that is killed at a random moment dies, at most."""
HELD = 0.4
"""How often a process is killed in the middle of its booking, and not at a random moment."""
SERVER_EVERY = (5, 12)
"""Agents that are killed between two kills of the server."""
SERVER_DOWN_MAX = 0.3
DECIDE_AT_ONCE = 0.75
"""How often an operator decides before another process was refused."""
DECISIONS_MAX = 5


class Started:
    """An agent in Rust: `runlog demo-agent`."""

    language = "Rust"

    def __init__(self, fleet: Fleet, trip: Trip) -> None:
        command = [BINARY, "--json", "demo-agent", "--journal", fleet.server.url, "--desk", fleet.desk.address]
        command += ["--seed", str(fleet.seed), "--number", str(trip.number), *(["--keyed"] if trip.keyed else [])]
        self._fleet, self._trip = fleet, trip
        self._out = (fleet.folder / f"{trip.run_id}.out").open("w+")
        self._process = subprocess.Popen(
            command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=self._out, stderr=subprocess.STDOUT
        )

    def ended(self) -> int | None:
        """Its exit code, as an agent in Python has it."""
        code = self._process.poll()
        if code is None:
            return None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._out.seek(0)
        said = self._out.read()
        self._out.close()
        if code <= 0:
            return code
        if "reconcile_required" in said:
            return RECONCILE
        # It does not wait for a server that is down when it starts.
        if '"kind":"unavailable"' in said:
            return UNAVAILABLE
        # A run that has ended is no work for it.
        if f"run {self._trip.run_id} is completed" in said:
            return DONE
        with self._fleet.complaints.open("a") as file:
            file.write(said)
        return BROKEN

    def kill(self) -> int:
        """`kill -9`. Returns how it ended: it may have been faster."""
        self._process.kill()
        self._process.wait()
        code = self.ended()
        assert code is not None
        return code


class Slot:
    """A trip, and the process that works on it."""

    def __init__(self, trip: Trip) -> None:
        self.trip = trip
        self.process: Forked | InNode | Started | None = None
        self.dies_at: float | None = None
        self.held: Held | None = None
        self.stuck_at = 0.0
        self.died_in: str | None = None
        """The language of the process that was killed last; `None` once that is settled."""
        self.pending: set[tuple[str, int]] = set()
        """The pending requests when the process began, each with its number of attempts."""


class Fleet:
    """Runs agents in slots, kills them and the server, and counts what happens."""

    def __init__(
        self, folder: Path, kills: int, seed: int, *, rust: float, typescript: float = 0, slots: int = 4
    ) -> None:
        self.folder, self.seed, self._kills, self._rust, self._typescript = folder, seed, kills, rust, typescript
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.answers, self.complaints = folder / "answers", folder / "complaints"
        self._prepared = Prepared(self.complaints) if typescript else None
        self.server, self.desk = Server(folder), Desk(folder / "ledger")
        self._driver = SyncDriver(SyncHttp(Config(self.server.url)))
        self.api = _api.Api(Config(self.server.url))
        self.trips: list[Trip] = []
        self._slots = [Slot(self._next_trip()) for _ in range(slots)]
        self._server_dies_after = self._random.randint(*SERVER_EVERY)
        self._server_starts_at: float | None = None
        self._server_up = True

    def ask(self, steps: Any) -> Any:
        """An operation of the client, in this process."""
        return self._driver.drive(steps)

    def run(self) -> None:
        """Kills `kills` times, then lets the last runs end."""
        while self._slots:
            self._look_after_server()
            for slot in list(self._slots):
                self._look_after(slot)
            time.sleep(STEP)
        self.server.wait()

    def stop(self) -> None:
        """Ends everything."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
        if self._prepared is not None:
            self._prepared.stop()
        self._driver.transport.close()
        self.desk.stop()
        self.server.stop()

    @property
    def killed(self) -> int:
        """Processes that were killed."""
        return self.counts["agents killed"] + self.counts["servers killed"]

    def _next_trip(self) -> Trip:
        number = len(self.trips) + 1
        self.trips.append(Trip(self.seed, number, keyed=self._random.random() < 0.5))
        return self.trips[-1]

    # The server

    def _look_after_server(self) -> None:
        if self._server_starts_at is not None:
            if time.monotonic() >= self._server_starts_at:
                self.server.start()
                self._server_starts_at = None
        elif not self._server_up:
            self._server_up = self.server.is_up()
        elif self._server_dies_after <= 0 and self.killed < self._kills:
            self.server.kill()
            self._server_up = False
            working = sum(slot.process is not None for slot in self._slots)
            self.counts["servers killed"] += 1
            self.counts["servers killed while agents worked"] += working > 0
            self._server_dies_after = self._random.randint(*SERVER_EVERY)
            self._server_starts_at = time.monotonic() + self._random.uniform(0, SERVER_DOWN_MAX)

    # Agents

    def _look_after(self, slot: Slot) -> None:
        if slot.process is not None:
            self._look_at_process(slot)
        elif self._server_up:
            if slot.died_in is not None:
                self._settle(slot)
            else:
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.stuck_at = time.monotonic() + STUCK_AFTER
        slot.dies_at = None
        # A hold stays until the desk gets that booking, from any process of the trip.
        if slot.held is None and self.killed < self._kills:
            if self._random.random() < HELD:
                moment = self._random.choice(("before_booking", "after_booking"))
                slot.held = Held(self.desk, slot.trip.passenger, moment)
            else:
                slot.dies_at = time.monotonic() + self._random.uniform(0, LIFE_MAX)
        language = self._random.random()
        if language < self._rust:
            slot.process = Started(self, slot.trip)
        elif self._prepared is not None and language < self._rust + self._typescript:
            trip = {**vars(slot.trip), "wish": slot.trip.wish()}
            place = {"url": self.server.url, "port": self.desk.port, "answers": str(self.answers)}
            slot.process = self._prepared.start({**place, "trip": trip})
        else:
            work = partial(agent.main, self.server.url, self.desk.port, slot.trip, self.answers)
            slot.process = Forked(work, self.complaints)
        self.counts[f"processes in {slot.process.language}"] += 1

    def _look_at_process(self, slot: Slot) -> None:
        assert slot.process is not None
        code = slot.process.ended()
        if code is None:
            if (slot.held is not None and slot.held.reached()) or (
                slot.dies_at is not None and time.monotonic() >= slot.dies_at
            ):
                self._kill(slot)
            elif time.monotonic() > slot.stuck_at:
                self._kill(slot)
                raise AssertionError(f"{slot.trip.run_id}: {slot.process} did nothing for {STUCK_AFTER} s")
            return
        self._end(slot, code)

    def _end(self, slot: Slot, code: int) -> None:
        """A process ended by itself."""
        slot.process = None
        if code == DONE:
            if slot.held is not None:
                slot.held.close()
            self.counts["runs completed"] += 1
            self._slots.remove(slot)
            if self.killed < self._kills:
                self._slots.append(Slot(self._next_trip()))
        elif code == RECONCILE:
            self.counts["refused until decided"] += 1
            slot.died_in = "nothing"
        elif code == UNAVAILABLE:
            self.counts["found no server"] += 1
        else:
            complaints = self.complaints.read_text() if self.complaints.exists() else ""
            raise AssertionError(f"{slot.trip.run_id}: a process ended with {code}: {complaints[-3000:]}")

    def _kill(self, slot: Slot) -> None:
        process = slot.process
        assert process is not None
        code = process.kill()
        if code != -signal.SIGKILL:
            self._end(slot, code)
            return
        self.counts["agents killed"] += 1
        self.counts[f"agents in {process.language} killed"] += 1
        self._server_dies_after -= 1
        slot.process, slot.died_in = None, process.language
        if slot.held is not None and slot.held.reached():
            slot.held.wait_for_hang_up()
            slot.held.close()
            slot.held = None

    def _settle(self, slot: Slot) -> None:
        """After a kill: counts the operations in flight, and makes the operator's decisions."""
        died_in, slot.died_in = slot.died_in, None
        found = self.ask(self.api.recovery(slot.trip.run_id, from_start=True, content=False))
        pending = found["pending"] if found is not None else []
        undecided = [call for call in pending if call["class"] == "reconcile_required"]
        known = slot.pending
        slot.pending = {(call["id"], call["attempts"]) for call in pending}
        in_flight = died_in != "nothing" and bool(slot.pending - known)
        if in_flight:
            self.counts["agents killed in mid-call"] += 1
            self.counts[f"agents in {died_in} killed in mid-call"] += 1
            self.counts["agents killed in mid-call of a booking"] += any(
                c["tool_name"].startswith("book_") for c in pending
            )
        if undecided and (died_in == "nothing" or self._random.random() < DECIDE_AT_ONCE):
            self._decide_all(slot.trip, undecided)
        self._start(slot)
        if in_flight and slot.process is not None:
            self.counts[f"mid-call: {died_in} to {slot.process.language}"] += 1

    def _decide_all(self, trip: Trip, undecided: list[dict[str, Any]]) -> None:
        """Decides until no call is undecided. A result that was in flight when its process died may arrive first."""
        for _ in range(DECISIONS_MAX):
            for call in undecided:
                self.counts[
                    "decisions" if self._decide(trip, call) else "decisions that a late result forestalled"
                ] += 1
            found = self.ask(self.api.recovery(trip.run_id, from_start=True, content=False))
            undecided = [call for call in found["pending"] if call["class"] == "reconcile_required"]
            if not undecided:
                return
        raise AssertionError(f"{trip.run_id} is not decided: {undecided}")

    def _decide(self, trip: Trip, pending: dict[str, Any]) -> bool:
        """Records a decision. Returns whether it was applied: it is refused if the effect changed since."""
        call = self.ask(self.api.call(trip.run_id, pending["id"]))
        decision: dict[str, Any] = {"decision": "not_done", "why": "the desk has no such booking"}
        if pending["tool_name"].startswith("book_"):
            args = call["arguments"]
            item = args.get("flight") or args["room"]
            booked = [b for b in self.desk.of(trip.passenger) if (b["item"], b["date"]) == (item, args["date"])]
            assert len(booked) <= 1, booked
            if booked:
                decision = {"decision": "done", "result": booked[0], "why": "the desk has this booking"}
        body = json.dumps({**decision, "revision": pending["revision"], "who": "the driver", "force": True}).encode()
        path = f"{_api.run_path(trip.run_id)}/effects/{_api.segment(pending['id'])}/resolution"
        answer = self._driver.transport.send(Request("POST", path, body, {"content-type": "application/json"}))
        said = json.loads(answer.body)
        assert said.get("outcome") == "applied" or said.get("kind") == "conflict", (pending, said)
        return answer.status == 200
