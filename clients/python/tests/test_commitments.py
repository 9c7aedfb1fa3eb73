"""Which handle started a call: claims commit to a secret, and an append-only token ends the calls of its own handle only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from conftest import Server, create_token
from faults import Interrupted, SyncFaults
from runlog import Config, ReconcileRequired, sync
from runlog._writer import Claim


@dataclass(frozen=True)
class Guarded:
    """A server with tokens and the feature `commitments`, and a token that may not decide."""

    url: str
    token: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "tokens.json"
    token = create_token(file, "append", "read_meta", "read_content")
    running = Server(folder / "data", "--write-schema", "3", "--tokens", str(file))
    yield Guarded(running.url, token)
    running.stop()


def claim_again(rl: sync.Runlog, faults: SyncFaults, run: sync.Run, how: str) -> None:
    writer = run._session.writer
    head = rl._driver.drive(rl._api.run(run.id))
    assert head is not None
    faults.arm(1 if how == "its answer is lost" else -1, after=True, fault=faults.fault)
    with contextlib.suppress(Interrupted):
        rl._driver.drive(writer.claim_after(writer.epoch, head["hash"] if how == "only_if" else None))
    if how == "its answer is lost":
        head = rl._driver.drive(rl._api.run(run.id))
        assert head is not None and writer.epoch < head["epoch"] and writer.adopt(head)


@pytest.mark.parametrize("how", ["appended", "only_if", "its answer is lost"])
def test_a_handle_that_claims_again_ends_its_calls_of_earlier_claims(guarded, run_id, how):
    config = Config(guarded.url, token=guarded.token)
    faults = SyncFaults(config)
    with sync.Runlog(config, faults) as rl:
        run = rl.open(run_id)

        def effect(_: object) -> str:
            for _again in range(2):
                claim_again(rl, faults, run, how)
            return "P1"

        assert run.call("pay", {"sum": 1}, effect).result == "P1"
        assert run.epoch == 3
        found = rl.lookup(run_id, "pay", {"sum": 1})
        assert (found["status"], found["result"]) == ("completed", "P1")


def test_another_handles_result_is_kept_as_evidence_and_the_call_stays_pending(guarded, run_id):
    with sync.connect(guarded.url, token=guarded.token) as rl:
        with pytest.raises(ReconcileRequired):
            rl.open(run_id).call("pay", {"sum": 1}, lambda _: 1 / 0)
        [effect] = rl.undecided(run_id)
        writer = rl.open(run_id)._session.writer
        record = writer.records.make({"type": "tool_call_completed", "request_record_id": effect.id, "result": "P2"})
        assert rl._driver.drive(writer.append_evidence(record))
        [effect] = rl.undecided(run_id)
        assert [(piece["payload"]["result"], piece["reason"]) for piece in effect.evidence] == [
            ("P2", "not_started_here")
        ]


def test_a_claim_shows_no_secret_in_its_repr():
    secret, shown = bytes(range(32)), bytes(range(32, 64))
    text = repr(Claim("id", "writer", 2, secret, shown))
    assert "writer" in text
    assert not any(word in text for word in (secret.hex(), shown.hex(), repr(secret), repr(shown)))
