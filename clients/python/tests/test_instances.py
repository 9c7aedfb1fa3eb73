"""Servers that share the partitions: a request goes to a server that holds the run's partition, and nothing happens elsewhere."""

from __future__ import annotations

import json

import pytest

import runlog
from runlog import Action, Config, Happened, Unavailable, sync
from runlog._http import SyncHttp
from runlog._wire import NoResponse, Request, Response

PARTITION = 3


class Instances(SyncHttp):
    """Three names of one server. A server in `holders` holds the partition of each run; the others name `instances`. A server in
    `down` answers no request about a run."""

    def __init__(self, url: str) -> None:
        port = url.rsplit(":", 1)[1]
        self.config = Config([f"http://{host}:{port}" for host in ("127.0.0.1", "localhost", "127.0.0.2")])
        super().__init__(self.config)
        self.holders, self.down, self.sent = set[str](), set[str](), list[Request]()
        self.instances: list[str] | None = None

    def _refusal(self, request: Request) -> Response | None:
        if not request.path.startswith("/v1/runs"):
            return None
        self.sent.append(request)
        if request.server in self.down:
            raise NoResponse("the connection broke", sent=True)
        if request.server in self.holders:
            return None
        instances = sorted(self.holders) if self.instances is None else self.instances
        problem = {
            "status": 503,
            "title": "unavailable",
            "kind": "unavailable",
            "reason": "not_here",
            "partition": PARTITION,
            "detail": f"partition {PARTITION} is not held here, but placed on {', '.join(instances)}",
            "not_here": {"partition": PARTITION, "instances": instances},
        }
        return Response(503, {"content-type": "application/problem+json"}, json.dumps(problem).encode())

    def send(self, request: Request) -> Response:
        return self._refusal(request) or super().send(self._everywhere(request))

    def stream(self, request: Request):
        refusal = self._refusal(request)
        if refusal is not None:
            yield refusal
            return
        yield from super().stream(self._everywhere(request))

    def _everywhere(self, request: Request) -> Request:
        """The request to the address on which the server listens."""
        server = self.config.servers[0]
        return Request(request.method, request.path, request.body, request.headers, request.timeout, 5.0, server)


@pytest.fixture
def servers(url):
    return Instances(url)


def asked(servers: Instances) -> list[str]:
    found, servers.sent = [request.server for request in servers.sent], []
    return found


def test_a_run_goes_to_the_server_that_holds_its_partition_and_stays_there(servers, run_id, caplog):
    first, _, third = servers.config.servers
    servers.holders = {third}
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        assert asked(servers)[:2] == [first, third], "the second server is not asked, because the first names the third"
        assert run.call("pay", {}, lambda _: "paid").result == "paid"
        assert set(asked(servers)) == {third}, "the handle remembers its server"
        # The connection serves runs of other partitions, whose handles begin at its first server.
        servers.holders = {first}
        rl.open(f"{run_id}-of-another-partition")
        assert set(asked(servers)) == {first}
        servers.holders = {third}
        assert rl.lookup(run_id, "pay", {})["status"] == "completed"
        assert list(rl.undecided(run_id)) == []
        assert next(rl.tail(run_id, until_end=True))["payload_type"] == "run_claim"
    assert "trying again" not in caplog.text


def test_a_refused_append_is_sent_with_the_same_bytes_and_is_in_the_log_once(servers, run_id):
    _, second, third = servers.config.servers
    servers.holders = {second}
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        # The partition moves.
        servers.holders = {third}
        servers.sent = []
        run.turn("user", "once")
        refused, applied = servers.sent
        assert (refused.server, applied.server, refused.body) == (second, third, applied.body)
        turns = [line for line in rl.tail(run_id, until_end=True) if line["payload_type"] == "conversation_turn"]
    assert len(turns) == 1


def test_servers_under_other_names_than_the_instances_are_asked_in_turn(servers, run_id):
    servers.holders, servers.instances = {servers.config.servers[2]}, ["http://runlog-2.internal:7070"]
    with sync.Runlog(servers.config, servers) as rl:
        rl.open(run_id)
        assert asked(servers)[:3] == list(servers.config.servers)


def test_a_partition_on_no_named_server_is_an_error_that_names_its_servers(servers, run_id):
    servers.instances = ["http://runlog-7:7070"]
    with sync.Runlog(servers.config, servers) as rl:
        for operation in (
            lambda: rl.open(run_id),
            lambda: rl.recover(run_id),
            lambda: list(rl.tail(run_id, until_end=True)),
        ):
            with pytest.raises(Unavailable, match="http://runlog-7:7070; name one of them in `connect`") as refused:
                operation()
            assert len(asked(servers)) == 3, "each server is asked once"
            assert (refused.value.action, refused.value.happened) == (Action.FIX_THE_INPUT, Happened.NOTHING)


def test_an_append_that_every_server_refuses_is_not_in_the_log(servers, run_id):
    first, _, _ = servers.config.servers
    servers.holders = {first}
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        servers.holders = set()
        with pytest.raises(Unavailable) as refused:
            run.turn("user", "nowhere")
        assert refused.value.happened is Happened.NOTHING
        servers.holders = {first}
        run.turn("user", "once")
        turns = [line for line in rl.tail(run_id, until_end=True) if line["payload_type"] == "conversation_turn"]
    assert [line["payload"]["content"] for line in turns] == ["once"]


def test_an_append_without_an_answer_stays_unknown_when_other_servers_refuse_it(servers, run_id):
    """The server that holds the partition may have appended the record, although the others did nothing."""
    first, second, _ = servers.config.servers
    servers.holders, effects = {second}, []
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        servers.down = {second}
        object.__setattr__(servers.config, "deadline", 0.5)
        with pytest.raises(Unavailable) as unknown:
            run.call("pay", {}, lambda _: effects.append("early"))
        assert (unknown.value.happened, effects) == (Happened.UNKNOWN, [])
        assert first in asked(servers)
        servers.down = set()
        object.__setattr__(servers.config, "deadline", 30.0)
        assert run.call("pay", {}, lambda _: effects.append("paid")).recorded is False
        requests = [line for line in rl.tail(run_id, until_end=True) if line["payload_type"] == "tool_call_requested"]
    assert effects == ["paid"] and len(requests) == 1


async def test_an_async_connection_follows_too(url, run_id):
    servers = Instances(url)
    servers.holders = {servers.config.servers[1]}

    class Async:
        async def send(self, request):
            return servers.send(request)

        async def close(self):
            servers.close()

    async with runlog.aio.Runlog(servers.config, Async()) as rl:
        run = await rl.open(run_id)
        asked(servers)
        await run.turn("user", "hello")
        assert set(asked(servers)) == {servers.config.servers[1]}
