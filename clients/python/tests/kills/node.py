"""Agents in TypeScript: clients/typescript/test/fleet-agent.mjs. One process is always prepared: Node takes long to start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from conftest import ENVIRONMENT

AGENT = Path(__file__).parents[3] / "typescript" / "test" / "fleet-agent.mjs"


class Prepared:
    """The process that the next trip gets."""

    def __init__(self, complaints: Path) -> None:
        if not (AGENT.parents[1] / "dist" / "index.js").exists():
            raise SystemExit("the TypeScript client is not compiled: run scripts/typescript.sh build")
        self._complaints = complaints
        self._next = self._prepare()

    def _prepare(self) -> subprocess.Popen[bytes]:
        with self._complaints.open("ab") as errors:
            return subprocess.Popen(
                ["node", AGENT], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )

    def start(self, work: dict[str, Any]) -> InNode:
        """Gives the prepared process its work, and prepares another one."""
        process, self._next = self._next, self._prepare()
        return InNode(process, work)

    def stop(self) -> None:
        """Ends the prepared process."""
        self._next.kill()
        self._next.wait()


class InNode:
    """An agent in TypeScript that works."""

    language = "TypeScript"

    def __init__(self, process: subprocess.Popen[bytes], work: dict[str, Any]) -> None:
        self._process = process
        assert process.stdin is not None
        process.stdin.write(json.dumps(work).encode() + b"\n")
        process.stdin.flush()

    def ended(self) -> int | None:
        """Its exit code, as an agent in Python has it."""
        code = self._process.poll()
        if code is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def kill(self) -> int:
        """`kill -9`. Returns how it ended: it may have been faster."""
        self._process.kill()
        self._process.wait()
        code = self.ended()
        assert code is not None
        return code
