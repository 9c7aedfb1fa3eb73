"""Containers for the tests of others. RUNLOG_CONTAINERS=1 runs the tests that need Docker, and the images of `make image
kafka-image`."""

from __future__ import annotations

import os

import pytest
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.container import DockerContainer

from runlog import Unavailable
from runlog.testcontainers import RunlogContainer, RunlogOnKafka
from test_processes import run_agent


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ImageNotFound("pull access denied for testcontainers/ryuk"), "TESTCONTAINERS_RYUK_DISABLED=true"),
        (DockerException("Error while fetching server API version"), "is Docker running"),
    ],
)
def test_a_container_that_docker_cannot_start_says_what_is_missing(error, says, monkeypatch):
    def start(self):
        raise error

    monkeypatch.setattr(DockerContainer, "start", start)
    monkeypatch.setattr(DockerContainer, "__init__", lambda self, *_, **__: None)
    for name in ("with_command", "with_exposed_ports"):
        monkeypatch.setattr(DockerContainer, name, lambda self, *_: self)
    with pytest.raises(Unavailable, match=says):
        RunlogContainer().start()


@pytest.mark.skipif(os.environ.get("RUNLOG_CONTAINERS") != "1", reason="RUNLOG_CONTAINERS is not 1")
@pytest.mark.parametrize("start", [RunlogContainer, RunlogOnKafka])
def test_an_agent_killed_in_a_call_resumes_with_a_journal_in_a_container(start, run_id, tmp_path, monkeypatch):
    # The image of its reaper may not be there. Containers end with the test.
    monkeypatch.setattr("testcontainers.core.config.testcontainers_config.ryuk_disabled", True)
    ledger = tmp_path / "ledger"
    with start() as journal:
        assert run_agent(journal.url, run_id, ledger, "die")[0] == -9
        assert run_agent(journal.url, run_id, ledger, "go")[1][-1] == "done"
    assert ledger.read_text().split("\n")[:-1] == ["find", "book order-7 1", "find", "book order-7 2", "pay"]
