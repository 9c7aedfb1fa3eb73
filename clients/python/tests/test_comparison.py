"""Runs the programs of docs/compare.md, and counts the requests of each at the bank after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import TOP, Server
from test_documents import blocks

DBOS, LANGGRAPH, RUNLOG = blocks(TOP / "docs" / "compare.md")
DECIDE = TOP / "clients" / "python" / "examples" / "decide.py"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A journal without effects of other tests: `decide.py` decides about all of them."""
    server = Server(tmp_path_factory.mktemp("comparison"))
    yield server.url
    server.stop()


class Shop:
    """A folder with the bank's list, in which the programs run."""

    def __init__(self, folder: Path, url: str, *command: object) -> None:
        self.folder, self.command = folder, command or (sys.executable,)
        self.environment = {**os.environ, "RUNLOG_SERVER": url, "DEAD_AFTER": "0"}

    def run(self, program: str | Path, *arguments: str) -> tuple[int, str]:
        """Returns the exit code and the output."""
        if isinstance(program, str):
            (self.folder / "program.py").write_text(program)
            program = self.folder / "program.py"
        command = [str(part) for part in (*self.command, program, *arguments)]
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode in (0, 9), ended.stdout + ended.stderr
        return ended.returncode, ended.stdout

    def requests(self) -> list[str]:
        return (self.folder / "bank.txt").read_text().splitlines()


@pytest.fixture
def shop(tmp_path: Path, url: str) -> Shop:
    return Shop(tmp_path, url)


def test_a_langgraph_node_that_died_after_its_effect_charges_again(shop):
    assert shop.run(LANGGRAPH, "die") == (9, "")
    assert shop.run(LANGGRAPH) == (0, "paid\n")
    assert shop.requests() == ["7 order-7", "7 order-7"]


def test_a_runlog_call_with_a_key_is_repeated_under_that_key(shop):
    assert shop.run(RUNLOG, "key", "die") == (9, "")
    assert shop.run(RUNLOG, "key") == (0, "paid\n")
    assert shop.requests() == ["7 order-7", "7 order-7"]


def test_a_runlog_call_without_a_key_charges_once_and_waits_for_a_decision(shop):
    assert shop.run(RUNLOG, "no-key", "die") == (9, "")
    code, out = shop.run(RUNLOG, "no-key")
    assert code == 0 and out.startswith("not charged, operator decides: call "), out
    assert shop.run(DECIDE) == (0, "order-7/no-key done\n")
    assert shop.run(RUNLOG, "no-key") == (0, "paid\n")
    assert shop.requests() == ["7 None"]


@pytest.mark.nightly
def test_a_dbos_step_that_died_after_its_effect_charges_again(tmp_path, url):
    shop = Shop(tmp_path, url, TOP / "scripts" / "python.sh", "peer")
    assert shop.run(DBOS, "die")[0] == 9
    assert shop.run(DBOS) == (0, "paid\n")
    assert shop.requests() == ["7 order-7", "7 order-7"]
