"""Connections that fail, and connections to several servers."""

from __future__ import annotations

import logging
import socket
import time
import traceback
from types import SimpleNamespace

import pytest

import runlog
from runlog import Action, Config, Unavailable, Usage, _clock, sync
from runlog._drive import SyncDriver
from runlog._http import SyncHttp
from runlog._wire import NoResponse, Perform
from runlog.langgraph import RunlogSaver
from runlog.testing import Journal


class Servers(SyncHttp):
    """Two names of one server. A request to a server in `down` arrives, and its answer is lost."""

    def __init__(self, url: str) -> None:
        self.config = Config([url, url.replace("127.0.0.1", "localhost")])
        super().__init__(self.config)
        self.down, self.sent = set[str](), list[tuple[str, str, bytes | None]]()

    def send(self, request):
        answer = super().send(request)
        if request.path.startswith("/v1/runs"):
            self.sent.append((request.server, request.method, request.body))
            if request.server in self.down:
                raise NoResponse("the connection broke", sent=True)
        return answer


def test_an_unanswered_request_goes_to_the_next_server_with_the_same_bytes(url, run_id):
    servers = Servers(url)
    first, second = servers.config.servers
    with sync.Runlog(servers.config, servers) as rl:
        servers.down = {first}
        run = rl.open(run_id)
        assert run.epoch == 1
        servers.down = {second}
        servers.sent.clear()
        run.turn("user", "once")
        (before, method, body), (after, again, same) = servers.sent
        assert (before, after, method, again) == (second, first, "POST", "POST") and body == same
        servers.down, servers.sent = set(), []
        assert run.call("pay", {}, lambda _: "paid").result == "paid"
        assert {server for server, _, _ in servers.sent} == {first}, "the server that answered last is asked first"
        kinds = [line["payload_type"] for line in rl.tail(run_id, until_end=True)]
    assert (kinds.count("run_claim"), kinds.count("conversation_turn")) == (1, 1)


def test_servers_of_two_journals_are_refused(url, run_id):
    with Journal() as other, sync.connect(f"{url}, {other.url}") as rl:
        run = rl.open(run_id)
        rl._api.servers.leave(url)
        with pytest.raises(runlog.Internal, match="name servers of one journal") as refused:
            run.turn("user", "to the wrong one")
        assert refused.value.action is Action.FIX_THE_INPUT


@pytest.fixture
def closed_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


def test_a_server_that_is_not_there_is_given_up_early_and_named_in_one_log_line(closed_port, caplog):
    caplog.set_level(logging.WARNING, "runlog")
    with sync.connect(f"http://127.0.0.1:{closed_port}", connect_deadline=0.3) as rl:
        with pytest.raises(Unavailable, match="is `runlog serve` running there"):
            rl.recover("run")
        assert len(caplog.records) == 1 and "trying again" in caplog.text


async def test_an_unreachable_server_is_one_traceback_with_the_reason_of_the_system(closed_port):
    async with runlog.connect(f"http://127.0.0.1:{closed_port}", connect_deadline=0.3) as rl:
        with pytest.raises(Unavailable, match="Connection refused") as of_async:
            await rl.recover("run")
    with (
        sync.connect(f"http://127.0.0.1:{closed_port}", connect_deadline=0.3) as rl,
        pytest.raises(Unavailable, match="Connection refused") as of_sync,
    ):
        rl.recover("run")
    for error in (of_async.value, of_sync.value):
        assert "".join(traceback.format_exception(error)).count("Traceback") == 1


def test_what_no_later_try_can_mend_fails_at_once_and_says_what_to_do(url, tmp_path, monkeypatch):
    with (
        sync.connect(url.replace("http:", "https:")) as rl,
        pytest.raises(Unavailable, match="use http://") as error,
    ):
        rl.recover("run")
    assert error.value.action is Action.FIX_THE_INPUT

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with sync.connect("http://journal.example") as rl, pytest.raises(Unavailable, match="no machine has this name"):
        rl.recover("run")
    with pytest.raises(Usage, match="no-such-file"):
        sync.connect("https://host", ca=tmp_path / "no-such-file")
    with pytest.raises(Usage, match="characters that no token has"):
        sync.connect(url, token="a\nb")


def test_a_run_without_its_connection_or_its_block_says_so(url, run_id):
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        with pytest.raises(AttributeError, match=r"with rl\.run"):
            _ = rl.run(run_id).call
        with rl.run(f"{run_id} left") as left:
            pass
        assert left.call("find", {}, lambda _: "found").result == "found"
    with pytest.raises(Unavailable, match="was closed in this process"):
        run.turn("user", "too late")
    with RunlogSaver.connect(url, prefix=run_id) as saver:
        pass
    with pytest.raises(Unavailable, match="was closed in this process"):
        saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})


class Suspended(SyncDriver):
    """The process is suspended for some seconds just before its effect starts, and another process takes the run
    over."""

    def __init__(self, config: Config, monkeypatch, meanwhile) -> None:
        super().__init__(SyncHttp(config))
        self.monkeypatch, self.meanwhile = monkeypatch, meanwhile

    def _do(self, command):
        if isinstance(command, Perform) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            later = time.time() + 6
            self.monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: later))
        return super()._do(command)


@pytest.mark.parametrize("taken_over", [False, True])
def test_an_effect_of_a_process_that_was_suspended_runs_only_if_it_still_has_the_run(
    url, run_id, monkeypatch, taken_over
):
    effects = []
    with sync.connect(url) as rl, sync.connect(url) as other:
        rl._driver = Suspended(rl.config, monkeypatch, lambda: taken_over and other.open(run_id))
        run = rl.open(run_id)
        if taken_over:
            with pytest.raises(runlog.Fenced):
                run.call("pay", {}, lambda _: effects.append("late"))
        else:
            run.call("pay", {}, lambda _: effects.append("late"))
    assert effects == ([] if taken_over else ["late"])


def test_an_effect_that_cannot_be_called_leaves_no_pending_call(url, run_id):
    async def pay(call: runlog.Call) -> None: ...

    with sync.connect(url) as rl, rl.run(run_id) as run:
        for effect in (lambda: 1, lambda call, more: 1, "pay", pay):
            with pytest.raises(Usage, match="the effect of pay"):
                run.call("pay", {}, effect)
        assert list(rl.undecided(run_id)) == []


class Meanwhile(SyncHttp):
    """Another process does something just before the claim arrives."""

    def __init__(self, config: Config, meanwhile) -> None:
        super().__init__(config)
        self.meanwhile = meanwhile

    def send(self, request):
        if "/claims" in request.path:
            self.meanwhile()
        return super().send(request)


def test_the_first_claim_of_two_simultaneous_processes_wins_the_run(url, run_id):
    with sync.connect(url) as rl:
        runs = []
        late = sync.Runlog(rl.config, Meanwhile(rl.config, lambda: runs.append(rl.open(run_id))))
        with late, pytest.raises(runlog.Active):
            late.open(run_id, unless_active=30)
        [run] = runs
        run.turn("user", "still the writer")
