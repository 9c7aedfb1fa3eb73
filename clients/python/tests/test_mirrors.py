"""Servers of a mirror of the journal: they refuse what only the home may answer, and their refusal is no retry."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import runlog
from runlog import Action, Config, Happened, ReconcileRequired, Unavailable, sync
from runlog._http import SyncHttp
from runlog._wire import NoResponse, Request, Response

HOME = "kafka:cluster:home"
TAG = f"%40{HOME.replace(':', '%3A')}"
REFUSAL = {
    "type": "about:blank#unavailable",
    "title": "unavailable",
    "status": 503,
    "kind": "unavailable",
    "reason": "mirror",
    "home": HOME,
    "detail": f"this server reads log kafka:cluster:mirror, a mirror of the home {HOME}",
}
DOUBT = {
    "type": "about:blank#reconcile_required",
    "title": "reconcile required",
    "status": 409,
    "kind": "reconcile_required",
    "reason": "doubt",
    "detail": f"the home {HOME} was lost: check the run's effects at their receivers, then `runlog home accept`",
}


class Servers(SyncHttp):
    """Two names of one server. A server in `mirrors` refuses requests about runs, and a server in `down` answers none. With
    `in_doubt`, the home was lost, and each server refuses requests about runs."""

    def __init__(self, url: str) -> None:
        self.config = Config([url, url.replace("127.0.0.1", "localhost")])
        super().__init__(self.config)
        self.mirrors, self.down, self.sent = set[str](), set[str](), list[Request]()
        self.in_doubt = False
        self.knows_logs, self.is_older = False, False

    def send(self, request: Request) -> Response:
        if request.path.startswith("/v1/runs"):
            self.sent.append(request)
            if request.server in self.down:
                raise NoResponse("the connection broke", sent=False)
            if self.in_doubt:
                return Response(409, {}, json.dumps(DOUBT).encode())
            if request.server in self.mirrors:
                return Response(503, {}, json.dumps(REFUSAL).encode())
            if "%40" in request.path and self.is_older:
                return Response(400, {}, json.dumps({**REFUSAL, "kind": "usage", "reason": None}).encode())
            request = replace(request, path=request.path.replace(TAG, ""))
        answer = super().send(request)
        if request.path.startswith("/v1/journal"):
            journal = json.loads(answer.body)
            features = {*journal["features"], "logs"} if self.knows_logs else {*journal["features"]} - {"logs"}
            answer = Response(answer.status, answer.headers, json.dumps({**journal, "features": [*features]}).encode())
        return answer


def test_a_request_that_a_mirror_refuses_goes_to_the_home_with_the_same_bytes(url, run_id):
    servers = Servers(url)
    first, second = servers.config.servers
    servers.mirrors = {first}
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        assert run.call("pay", {}, lambda _: "paid").result == "paid"
        of_mirror = [request for request in servers.sent if request.server == first]
        assert len(of_mirror) == 1, "the server that answered last is asked first"
        assert servers.sent[1].server == second and servers.sent[1].path.split("deadline")[0] in of_mirror[0].path


def test_mirrors_alone_are_asked_once_each_and_no_effect_runs(url, run_id):
    servers = Servers(url)
    effects: list[str] = []
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        servers.mirrors, servers.sent = set(servers.config.servers), []
        with pytest.raises(Unavailable, match=HOME) as refused:
            run.call("pay", {}, lambda _: effects.append("paid"))
        assert (refused.value.action, refused.value.happened) == (Action.OPERATOR, Happened.NOTHING)
        assert [request.server for request in servers.sent].count(servers.config.servers[0]) == 1
        assert len(servers.sent) == 2 and effects == []
        assert refused.value.problem["home"] == HOME
        # The handle can write again when the home answers.
        servers.mirrors = set()
        run.call("pay", {}, lambda _: effects.append("paid"))
    assert effects == ["paid"]


def test_a_mirror_does_not_end_the_tries_while_the_home_does_not_answer(url, run_id):
    servers = Servers(url)
    first, second = servers.config.servers
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        servers.mirrors, servers.down, servers.sent = {second}, {first}, []

        def restart(request: Request) -> Response:
            if len(servers.sent) > 4:
                servers.down = set()
            return Servers.send(servers, request)

        rl._driver.transport.send = restart
        run.turn("user", "after the restart")
        assert len(servers.sent) > 4


@pytest.mark.parametrize(("knows_logs", "is_older", "sent"), [
    (False, False, [""]),
    (True, False, [TAG]),
    # The address leads to several servers, and an older one answers.
    (True, True, [TAG, ""]),
])  # fmt: skip
def test_a_position_names_its_log_to_a_server_that_knows_logs(url, run_id, knows_logs, is_older, sent):
    servers = Servers(url)
    servers.knows_logs, servers.is_older = knows_logs, is_older
    with sync.Runlog(servers.config, servers) as rl:
        payload = {"type": "run_lifecycle", "status": "started"}
        record = {"run_id": run_id, "record_id": f"{run_id}-started", "payload": payload}
        [outcome] = rl._driver.drive(rl._api.append(run_id, [record]))
        position = {**outcome["position"], "log": HOME}
        place = f"{position['partition']}%3A{position['offset']}"

        def logs(before: str) -> list[str]:
            """The log that each request names after its position."""
            return [request.path.split(before)[1].split("&")[0] for request in servers.sent]

        servers.sent = []
        read = rl._driver.drive(rl._api.outcome(run_id, outcome["record_id"], position, 10))
        assert read["outcome"] == outcome["outcome"] and logs(f"position={place}%3A0") == sent
        servers.sent = []
        assert rl._driver.drive(rl._api.call_with_key(run_id, "pay", "key", position)) is None
        assert logs(f"consistency=at-least%3D{place}") == sent


def is_doubt(refused: pytest.ExceptionInfo[ReconcileRequired]) -> bool:
    error = refused.value
    return (error.action, error.problem["reason"], error.call) == (Action.OPERATOR, "doubt", "") and HOME in str(error)


def test_a_run_in_doubt_runs_no_effect_until_an_operator_accepts_it(url, run_id):
    servers = Servers(url)
    effects: list[str] = []
    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        run.call("mail", {}, lambda _: effects.append("mail"))
        servers.in_doubt, servers.sent = True, []
        for tries in range(1, 4):
            with pytest.raises(ReconcileRequired) as refused:
                run.call("pay", {}, lambda _: effects.append("pay"))
            assert is_doubt(refused) and refused.value.happened is Happened.NOTHING
            assert len(servers.sent) == tries, "a refusal is final, and is not repeated"
        with pytest.raises(ReconcileRequired) as refused:
            run.turn("user", "hello")
        assert is_doubt(refused)
        for refuse in (rl.open, rl.recover):
            with pytest.raises(ReconcileRequired) as refused:
                refuse(run_id)
            assert is_doubt(refused)
        assert effects == ["mail"]
        # An operator accepts the run.
        servers.in_doubt = False
        run.call("pay", {}, lambda _: effects.append("pay"))
    assert effects == ["mail", "pay"]


def test_an_effect_that_ran_when_the_home_was_lost_runs_once(url, run_id):
    servers = Servers(url)
    effects: list[str] = []

    def pay(_: object) -> str:
        effects.append("pay")
        servers.in_doubt = True
        return "paid"

    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        with pytest.raises(ReconcileRequired) as refused:
            run.call("pay", {}, pay)
        assert is_doubt(refused) and refused.value.happened is Happened.HELD
        with pytest.raises(ReconcileRequired) as refused:
            run.call("pay", {}, pay)
        assert is_doubt(refused)
        servers.in_doubt = False
        answer = run.call("pay", {}, pay)
        assert (answer.result, answer.recorded, effects) == ("paid", True, ["pay"])


def test_another_attempt_of_a_run_in_doubt_names_the_doubt_and_no_decision(url, run_id):
    servers = Servers(url)
    effects: list[str] = []

    def fails(_: object) -> None:
        effects.append("try")
        raise runlog.Unknown("no answer")

    with sync.Runlog(servers.config, servers) as rl:
        run = rl.open(run_id)
        with pytest.raises(Unavailable):
            run.call("pay", {}, fails, key="k")
        send, servers_send = servers.send, Servers.send

        def refuse_attempts(request: Request) -> Response:
            servers.in_doubt = request.method == "POST" and b"tool_call_attempt" in (request.body or b"")
            return servers_send(servers, request)

        rl._driver.transport.send = refuse_attempts
        with pytest.raises(ReconcileRequired) as refused:
            run.call("pay", {}, fails, key="k")
        rl._driver.transport.send = send
    assert is_doubt(refused) and effects == ["try"]


def test_a_refusal_of_doubt_needs_an_operator():
    error = runlog.errors.of_problem(DOUBT)
    assert (error.action, error.happened, error.problem) == (Action.OPERATOR, Happened.NOTHING, DOUBT)
