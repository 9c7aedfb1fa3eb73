"""Containers for the tests of others. RUNLOG_CONTAINERS=1 runs these tests: they need Docker, and the images of `make image
kafka-image`."""

from __future__ import annotations

import os

import pytest

from test_processes import run_agent

if os.environ.get("RUNLOG_CONTAINERS") != "1":
    pytest.skip("RUNLOG_CONTAINERS is not 1", allow_module_level=True)

from runlog.testcontainers import RunlogContainer, RunlogOnKafka


@pytest.mark.parametrize("start", [RunlogContainer, RunlogOnKafka])
def test_an_agent_that_is_killed_in_the_middle_of_a_call_goes_on_with_a_journal_in_a_container(
    start, run_id, tmp_path, monkeypatch
):
    # The image of its reaper may not be there. Containers end with the test.
    monkeypatch.setattr("testcontainers.core.config.testcontainers_config.ryuk_disabled", True)
    ledger = tmp_path / "ledger"
    with start() as journal:
        assert run_agent(journal.url, run_id, ledger, "die")[0] == -9
        assert run_agent(journal.url, run_id, ledger, "go")[1][-1] == "done"
    assert ledger.read_text().split("\n")[:-1] == ["find", "book order-7 1", "find", "book order-7 2", "pay"]
