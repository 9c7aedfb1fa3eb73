"""`runlog.testing`: journals for the tests of applications."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conftest import BINARY, ENVIRONMENT, TOP
from runlog import Usage, sync
from runlog.testing import Journals, find_binary


def test_the_example_suite_passes():
    suite = TOP / "clients" / "python" / "examples" / "suite"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(suite)]
    ended = subprocess.run(
        command,
        env={**ENVIRONMENT, "RUNLOG_BIN": str(BINARY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0 and "5 passed" in ended.stdout, ended.stdout + ended.stderr


def test_when_a_journal_ends_the_next_journal_is_ready_and_empty(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", ENVIRONMENT["LD_LIBRARY_PATH"])
    journals = Journals(str(BINARY))
    try:
        seen = set()
        for _ in range(3):
            with journals.journal() as journal, sync.connect(journal.url) as rl:
                assert rl.recover("run") is None
                seen.add(rl.open("run").id + journal.url)
                ready = journals._next
                assert ready is not None and ready.url != journal.url
                folder = journal._folder
            assert not folder.exists()
            with journals.journal() as following:
                assert following is ready
        assert len(seen) == 3
    finally:
        journals.close()


def test_a_binary_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("RUNLOG_BIN", str(tmp_path / "runlog"))
    with pytest.raises(Usage, match="RUNLOG_BIN"):
        find_binary()
    monkeypatch.delenv("RUNLOG_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Usage, match="make build"):
        find_binary()
