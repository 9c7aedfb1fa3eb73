"""`runlog mcp-gate` between the official MCP client and server, with kills at every point."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from conftest import BINARY, ENVIRONMENT, command

SERVER = Path(__file__).with_name("mcp_server.py")


class Desk:
    """The ledger of the MCP server, and the command lines that lead to it."""

    def __init__(self, folder: Path, url: str, run_id: str) -> None:
        self.ledger, self.url, self.run_id = folder / "ledger", url, run_id
        self.ledger.touch()

    def bookings(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def release(self) -> None:
        """Lets held answers go."""
        self.ledger.with_suffix(".go").touch()

    def kill(self) -> None:
        """Kills the gate."""
        os.kill(int(self.ledger.with_suffix(".parent").read_text()), signal.SIGKILL)

    def policy(self, **members: Any) -> list[str]:
        file = self.ledger.with_suffix(".policy")
        file.write_text(json.dumps(members))
        return ["--policy", str(file)]

    def direct(self) -> StdioServerParameters:
        return StdioServerParameters(command=sys.executable, args=[str(SERVER), str(self.ledger)])

    def gate(self, *options: str, url: str | None = None, upstream: list[str] | None = None) -> StdioServerParameters:
        behind = upstream or ["--", sys.executable, str(SERVER), str(self.ledger)]
        arguments = ["mcp-gate", "--server", url or self.url, "--run", self.run_id, *options, *behind]
        return StdioServerParameters(command=str(BINARY), args=arguments, env=ENVIRONMENT)

    def pending(self) -> list[dict[str, Any]]:
        listed = json.loads(command(self.url, "effects", "--pending", "--json").stdout)
        return [effect for effect in listed["effects"] if effect["run_id"] == self.run_id]

    def decide(self, *decision: str) -> None:
        (effect,) = self.pending()
        options = ["--who", "jo", "--why", "asked the desk", "--force", "--yes"]
        decided = command(self.url, "effects", "resolve", self.run_id, effect["id"], *decision, *options)
        assert decided.returncode == 0, decided.stderr


async def until(happened: Callable[[], object]) -> None:
    """Waits until the other processes have done something."""

    def poll() -> None:
        while not happened():
            time.sleep(0.02)

    await asyncio.to_thread(poll)


@pytest.fixture
def desk(tmp_path: Path, url: str, run_id: str) -> Desk:
    return Desk(tmp_path, url, run_id)


@contextlib.asynccontextmanager
async def connected(server: StdioServerParameters, **options: Any) -> AsyncIterator[Client]:
    """A client. The end of a connection whose server was killed may fail."""
    client = Client(server, **options)
    await client.__aenter__()
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            await client.__aexit__(None, None, None)


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """Calls a tool, and returns the text of its answer, marked if it is an error or recorded."""
    answer = await client.call_tool(tool, arguments)
    marks = ("error: " if answer.is_error else "") + (
        "recorded: " if (answer.meta or {}).get("io.runlog/recorded") else ""
    )
    return marks + answer.content[0].text  # pyright: ignore[reportAttributeAccessIssue]


async def time_out(client: Client, desk: Desk, *, gated: bool = True) -> None:
    """Calls a tool that acts and does not answer within the client's time limit.

    The gate never begins a call that the client gives up while the run is opened, as on a slow machine: then once more."""
    before, limit = len(desk.bookings()), 0.5
    while len(desk.bookings()) == before:
        with pytest.raises(MCPError, match=r"[Tt]imed out"):
            await client.call_tool("book", {"flight": "HAT136", "hold": True}, read_timeout_seconds=limit)
        limit *= 2
        if not gated:
            await until(lambda: len(desk.bookings()) > before)


class Journal:
    """A proxy in front of the journal, that kills the gate at the first request with a text."""

    def __init__(self, desk: Desk, text: str, after: bool) -> None:
        self.armed = True
        journal, at = self, urlsplit(desk.url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                hit = journal.armed and text.encode() in body
                if hit and not after:
                    journal.strike(desk)
                    return
                upstream = http.client.HTTPConnection(at.hostname or "", at.port)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                upstream.request(self.command, self.path, body, headers)
                response = upstream.getresponse()
                content = response.read()
                upstream.close()
                if hit:
                    journal.strike(desk)
                    return
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def strike(self, desk: Desk) -> None:
        self.armed = False
        desk.kill()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def killing(desk: Desk) -> Iterator[Callable[[str, bool], Journal]]:
    journals: list[Journal] = []

    def make(text: str, after: bool) -> Journal:
        journals.append(Journal(desk, text, after))
        return journals[-1]

    yield make
    for journal in journals:
        journal.close()


async def killed(desk: Desk, journal: Journal, tool: str = "book", *options: str, **arguments: Any) -> None:
    """Makes a call whose gate is killed."""
    async with connected(desk.gate(*options, url=journal.url)) as client:
        with pytest.raises(Exception, match=r"."):
            await client.call_tool(tool, arguments or {"flight": "HAT136"})
    assert not journal.armed


@pytest.mark.parametrize("gated", [False, True])
async def test_a_call_that_times_out_and_is_repeated_books_twice_without_the_gate_and_once_with_it(desk, gated):
    async with connected(desk.gate() if gated else desk.direct()) as client:
        await time_out(client, desk, gated=gated)
        desk.release()
        answer = await call(client, "book", flight="HAT136", hold=True)
        assert (answer.removeprefix("recorded: "), len(desk.bookings())) == (("B-1", 1) if gated else ("B-2", 2))
        # The client has the answer, so an equal call is a new one.
        assert await call(client, "book", flight="HAT136", hold=True) == f"B-{len(desk.bookings())}"
        assert len(desk.bookings()) == (2 if gated else 3)


async def test_a_repeat_waits_for_the_call_that_still_runs(desk):
    async with connected(desk.gate()) as client:
        await time_out(client, desk)
        repeated = asyncio.ensure_future(call(client, "book", flight="HAT136", hold=True))
        other = await call(client, "book", flight="HAT137")
        desk.release()
        assert (await repeated, other, desk.bookings()) == ("B-1", "B-2", ["HAT136", "HAT137"])


async def test_equal_calls_at_once_are_two_calls_unless_the_policy_has_one_at_a_time(desk):
    async with connected(desk.gate()) as client:
        calls = [asyncio.ensure_future(call(client, "book", flight="HAT136", hold=True)) for _ in range(2)]
        await until(lambda: len(desk.bookings()) == 2)
        desk.release()
        assert sorted(await asyncio.gather(*calls)) == ["B-1", "B-2"]
    options = desk.policy(tools={"book": {"one_at_a_time": True}})
    desk.ledger.with_suffix(".go").unlink()
    async with connected(desk.gate(*options)) as client:
        calls = [asyncio.ensure_future(call(client, "book", flight="HAT1", hold=True)) for _ in range(2)]
        # The other call began after both.
        assert await call(client, "book", flight="HAT2")
        desk.release()
        first, second = await asyncio.gather(*calls)
        assert (first == second, desk.bookings().count("HAT1")) == (True, 1)


async def test_a_process_that_takes_over_makes_answered_calls_anew_and_answers_the_others(desk):
    async with connected(desk.gate()) as client:
        assert await call(client, "book", flight="HAT136") == "B-1"
        await time_out(client, desk)
        desk.release()
        assert (await call(client, "fail", flight="HAT9")) == "error: no seat"
        await until(lambda: not desk.pending())
    async with connected(desk.gate()) as client:
        assert await call(client, "book", flight="HAT136") == "B-4", "its answer was received"
        assert await call(client, "book", flight="HAT136", hold=True) == "recorded: B-2", "its answer was not"
        assert await call(client, "fail", flight="HAT9") == "error: no seat"
    assert desk.bookings().count("HAT136") == 3


async def test_an_agent_that_starts_over_gets_the_recorded_answers_in_their_order(desk):
    async with connected(desk.gate()) as client:
        assert [await call(client, "book", flight="HAT136") for _ in range(2)] == ["B-1", "B-2"]
        assert await call(client, "fail", flight="HAT9") == "error: no seat"
    async with connected(desk.gate("--replay")) as client:
        answers = [await call(client, "book", flight="HAT136") for _ in range(3)]
        assert answers == ["recorded: B-1", "recorded: B-2", "B-4"]
        assert await call(client, "fail", flight="HAT9") == "error: recorded: no seat"
    assert len(desk.bookings()) == 4


async def test_a_kill_before_the_server_got_the_request_leaves_a_call_that_an_operator_decides(desk, killing):
    await killed(desk, killing("tool_call_requested", True))
    async with connected(desk.gate()) as client:
        refused = await call(client, "book", flight="HAT136")
        (effect,) = desk.pending()
        assert refused.startswith("error: runlog: book is not run: an operator must decide, at ")
        assert f"{desk.url}/ui/decisions?run=" in refused and effect["id"].replace("-", "%2D") in refused
        assert desk.bookings() == []
        desk.decide("--not-done")
        assert await call(client, "book", flight="HAT136") == "B-1"


async def test_a_kill_between_the_servers_answer_and_its_record_does_not_repeat_the_effect(desk, killing):
    await killed(desk, killing("tool_call_completed", False))
    async with connected(desk.gate()) as client:
        assert "an operator must decide" in await call(client, "book", flight="HAT136")
        assert "an operator must decide" in await call(client, "book", flight="HAT137"), "no new effect before that"
        # The tool has an output schema, which the client checks.
        result = {"content": [{"type": "text", "text": "B-1"}], "structuredContent": {"result": "B-1"}}
        desk.decide("--done", json.dumps(result))
        assert await call(client, "book", flight="HAT136") == "recorded: B-1"
        assert await call(client, "book", flight="HAT136") == "B-2"


async def test_a_kill_between_the_record_and_the_clients_answer_neither_repeats_nor_loses_the_effect(desk, killing):
    await killed(desk, killing("tool_call_completed", True))
    async with connected(desk.gate()) as client:
        assert await call(client, "book", flight="HAT136") == "recorded: B-1"
        assert await call(client, "book", flight="HAT136") == "B-2"
    assert (desk.pending(), len(desk.bookings())) == ([], 2)


async def test_a_client_that_dies_with_the_gate_before_its_next_message_gets_the_answer_again(desk):
    async with connected(desk.gate()) as client:
        # Otherwise the client asks for the schema of the answer when it has the answer.
        await client.list_tools()
        assert await call(client, "book", flight="HAT136") == "B-1"
        desk.kill()
    async with connected(desk.gate()) as client:
        assert await call(client, "book", flight="HAT136") == "recorded: B-1"
        assert await call(client, "book", flight="HAT136") == "B-2"


async def test_the_same_id_of_the_client_is_the_same_call_after_a_restart(desk):
    meta: Any = {"claudecode/toolUseId": "toolu_1"}
    for expected in (None, True):
        async with connected(desk.gate()) as client:
            answer = await client.call_tool("book", {"flight": "HAT136"}, meta=meta)
            assert ((answer.meta or {}).get("io.runlog/recorded"), len(desk.bookings())) == (expected, 1)
            await client.list_tools()


async def test_the_policy_makes_a_call_repeatable_or_gives_the_server_a_key(desk, url_of_bases, killing):
    desk.url = url_of_bases
    repeatable = desk.policy(tools={"bo*": {"runs": "repeatable"}})
    await killed(desk, killing("tool_call_completed", False), "book", *repeatable)
    async with connected(desk.gate(*repeatable)) as client:
        assert await call(client, "book", flight="HAT136") == "B-2"
    keyed = desk.policy(tools={"pay": {"idempotency_key": "key"}})
    await killed(desk, killing("tool_call_completed", False), "pay", *keyed, cents=5)
    async with connected(desk.gate(*keyed)) as client:
        assert await call(client, "pay", cents=5) == "paid already"
        assert await call(client, "pay", cents=5) == "B-4", "an equal call is a new one, with another key"
    assert len({line for line in desk.bookings() if line.startswith("pay ") and line != "pay "}) == 2


async def test_hints_count_only_if_the_policy_trusts_them(desk):
    trusting = desk.policy(trust_hints=True)
    async with connected(desk.gate(*trusting)) as client:
        await client.list_tools()
        await call(client, "book", flight="HAT136")
    assert "tool_call_completed" not in command(desk.url, "show", desk.run_id, "--json").stdout, "it was passed"
    async with connected(desk.gate()) as client:
        await client.list_tools()
        await call(client, "book", flight="HAT136")
    assert "tool_call_completed" in command(desk.url, "show", desk.run_id, "--json").stdout


async def test_two_clients_on_one_run_book_once_and_the_first_result_is_evidence(desk):
    async with connected(desk.gate()) as first, connected(desk.gate()) as second:
        running = asyncio.ensure_future(call(first, "book", flight="HAT136", hold=True))
        await until(desk.bookings)
        assert "an operator must decide" in await call(second, "book", flight="HAT136", hold=True)
        desk.release()
        # The journal refuses the result after its acknowledgement, or at once.
        answer = await running
        assert answer == "B-1" or "book may have run" in answer
        assert "did not run" in await call(first, "book", flight="HAT137"), "the first client has lost the run"
        desk.decide("--adopt")
        assert await call(second, "book", flight="HAT136", hold=True) == "recorded: B-1"
    assert desk.bookings() == ["HAT136"]


async def test_a_server_that_dies_leaves_its_call_in_doubt(desk):
    async with connected(desk.gate()) as client:
        assert "the MCP server ended before it answered" in await call(client, "crash", flight="HAT136")
    async with connected(desk.gate()) as client:
        assert "an operator must decide" in await call(client, "crash", flight="HAT136")
    assert desk.bookings() == ["HAT136"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_everything_but_calls_passes_unchanged(desk, mode):
    async def all_of(server: StdioServerParameters) -> list[Any]:
        steps: list[Any] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        async with connected(server, mode=mode) as client:
            answers = [await client.list_tools(), await client.list_resources(), await client.list_prompts()]
            answers += [await client.read_resource("desk://seats"), await client.get_prompt("greet", {"name": "Jo"})]
            answers.append(await client.call_tool("slow", {}, progress_callback=progressed))
            return [[answer.model_dump(exclude={"meta"}) for answer in answers], steps]

    assert await all_of(desk.gate()) == await all_of(desk.direct())


def test_lines_keep_their_bytes_and_no_form_of_a_call_passes_ungated(desk):
    lines = [
        '{"jsonrpc":"2.0", "id":7,"method":"x/y","params":{"n":1.50,"big":12345678901234567890,"s":"\\u00e9é"} }',
        '{"method":"notifications/of/tomorrow"}',
        '{"jsonrpc":"2.0","id":"a","result":{"model":"m"}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}',
    ]
    ungated = [
        '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"book"}}',
        '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"book"}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","name":"pay"}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call"',
    ]
    last = '{"jsonrpc":"2.0","id":8,"method":"ping"}'
    arguments = [BINARY, "mcp-gate", "--server", desk.url, "--run", desk.run_id, "--", "cat"]
    gate = subprocess.Popen(arguments, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert gate.stdin and gate.stdout
    batch = f"[{lines[1]},{ungated[0]}]"
    gate.stdin.write("\n".join([*lines, *ungated, batch, last, ""]))
    gate.stdin.flush()
    printed: list[str] = []
    while last not in printed:
        printed.append(gate.stdout.readline().rstrip("\n"))
    gate.stdin.close()
    assert gate.wait(20) == 0
    gate.stdout.close()
    assert [line for line in printed if "error" not in line] == [*lines, lines[1], last]
    assert len([line for line in printed if "error" in line]) == 3


def test_without_a_journal_the_gate_does_not_start(desk):
    arguments = [BINARY, "mcp-gate", "--server", "http://127.0.0.1:9", "--", "cat"]
    ended = subprocess.run(
        arguments, env=ENVIRONMENT, input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (4, ""), ended.stderr


@pytest.fixture
def at_url(desk: Desk) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The MCP server at a URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, str(SERVER), str(desk.ledger), str(port)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp", process
    process.kill()
    process.wait()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_server_at_a_url_is_behind_the_same_gate(desk, at_url, mode):
    url, process = at_url
    async with connected(desk.gate(upstream=["--upstream", url]), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"book", "pay"}
        await time_out(client, desk)
        desk.release()
        assert (await call(client, "book", flight="HAT136", hold=True)).removeprefix("recorded: ") == "B-1"
        desk.ledger.with_suffix(".go").unlink()
        lost = asyncio.ensure_future(call(client, "book", flight="HAT137", hold=True))
        await until(lambda: len(desk.bookings()) == 2)
        process.kill()
        assert "an operator must decide" in await lost
        assert "an operator must decide" in await call(client, "book", flight="HAT137", hold=True)
    assert desk.bookings() == ["HAT136", "HAT137"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_progress_of_a_server_at_a_url_reaches_the_client(desk, at_url, mode):
    steps: list[Any] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with connected(desk.gate(upstream=["--upstream", at_url[0]]), mode=mode) as client:
        answer = await client.call_tool("slow", {}, progress_callback=progressed)
    assert [answer.content[0].text, *steps] == ["done", (1, 2, "step 1"), (2, 2, "step 2")]
