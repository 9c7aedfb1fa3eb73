"""The programs in README, pages and examples run as they are written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import runlog
from conftest import TOP

CLIENT = TOP / "clients" / "python"
AGENTS = TOP / "docs" / "agents"


def blocks(file: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run(url: str, program: str | Path, *options: str, ends_with: int = 0, **variables: str) -> str:
    arguments = [program, *options] if isinstance(program, Path) else ["-c", program]
    environment = {**os.environ, "RUNLOG_SERVER": url, **variables}
    ended = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == ends_with, ended.stderr
    return ended.stdout


def test_the_loop_of_the_readme_resumes_after_a_kill(url):
    agent = blocks(CLIENT / "README.md")[0]
    assert agent == (CLIENT / "examples" / "quickstart.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    books = [f"booking {city} with the key trip-3-{city}, attempt 1" for city in ("LHR", "CDG")]
    assert run(url, agent, ends_with=-signal.SIGKILL, DIE_IN="CDG").splitlines() == books
    again = ["booking CDG with the key trip-3-CDG, attempt 2", "booking FCO with the key trip-3-FCO, attempt 1"]
    booked = "['B-LHR', 'B-CDG', 'B-FCO']"
    assert run(url, agent).splitlines() == [*again, booked]
    assert run(url, agent).splitlines() == [booked]
    said = (CLIENT / "README.md").read_text(encoding="utf-8")
    assert all(line in said for line in (*books, *again, booked))


def test_the_loop_of_the_readme_without_its_key_stops_for_a_decision(url):
    agent = blocks(CLIENT / "README.md")[0].replace("trip-3", "trip-3-keyless")
    keyless = re.sub(r"@runlog.tool\(.*", "@runlog.tool", agent)
    run(url, keyless, ends_with=-signal.SIGKILL, DIE_IN="CDG")
    program = keyless.replace(
        "asyncio.run(main())", "try:\n    asyncio.run(main())\nexcept runlog.ReconcileRequired:\n    print(1)"
    )
    assert run(url, program) == "1\n"


def test_the_other_programs_of_the_readme_run(url):
    _, plain, graph = blocks(CLIENT / "README.md")
    assert run(url, plain) == "HAT136\n"
    assert run(url, graph) == "{'log': ['to London', 'found HAT136']}\n"


def test_the_main_readme_shows_the_same_agent():
    assert blocks(CLIENT / "README.md")[0] in blocks(TOP / "README.md")


def shown(example: str) -> str:
    """A program below its docstring."""
    return (CLIENT / "examples" / example).read_text(encoding="utf-8").split('"""\n\n', 1)[1]


def test_the_quick_start_with_curl_can_be_pasted_again(url):
    [block] = re.findall(
        r"^```sh\n(.*?)^```", (TOP / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    requests = "\n".join(
        ["set -eu", f"api={url}", *block[block.index("json=") : block.index("# From now on")].splitlines()]
    )

    def outcomes(script: str) -> list[str]:
        environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
        pasted = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
        assert pasted.returncode == 0, pasted.stderr
        return re.findall(r'"outcome":"(\w+)"', pasted.stdout)

    assert outcomes(requests) == ["applied", "applied"] and outcomes(requests) == ["repeat", "repeat"]
    assert outcomes(requests.replace('"call-1', '"call-2')) == ["applied", "applied"]


def test_the_pages_for_agents_show_the_examples():
    # `test_watcher.py` and `test_comparison.py` run them.
    assert blocks(AGENTS / "crash.md") == [shown("trip_agent.py"), shown("decide.py")]
    [core] = blocks(AGENTS / "restart.md")
    assert core in shown("watcher.py")


def test_a_message_that_is_delivered_twice_is_handled_once(url):
    [queue] = blocks(AGENTS / "places.md")
    assert run(url, queue) == "charging order 7\npaid\npaid\n"


def test_a_killed_trip_is_continued_without_the_model_and_the_first_tool(url):
    trip = f"trips/{uuid.uuid4()}"
    model, find, book = (
        "the model is asked with {} messages\n",
        "`find_flight` runs\n",
        "`book_flight` runs, attempt {}\n",
    )
    program = CLIENT / "examples" / "trip_agent.py"
    first = run(url, program, trip, "die", ends_with=9)
    assert first == model.format(1) + find + model.format(3) + book.format(1)
    assert run(url, program, trip) == book.format(2) + model.format(5) + "You are booked.\n"
    assert run(url, program, trip) == "You are booked.\n"


def test_the_watcher_ends_the_run_of_a_killed_agent(url):
    out = run(url, CLIENT / "examples" / "watcher.py")
    assert out.count("`book_flight` runs") == 2 and out.endswith("the run is completed; the watcher ended with 0\n")


def test_the_killed_graph_resumes_at_its_checkpoint(url):
    out = run(url, CLIENT / "examples" / "langgraph_killed.py")
    assert out.count("`find` runs") == 1 and "it was killed" in out
    assert "['found HAT136', 'booked B-1009']\nit ended with 0" in out


def test_the_killed_agent_of_langchain_runs_no_tool_twice_that_ended(url):
    out = run(url, CLIENT / "examples" / "langchain_killed.py")
    assert out.count("`find` runs") == 1 and out.count("`book` runs") == 2 and "it was killed" in out
    assert "'B-1009', 'You are booked.']\nit ended with 0" in out


def test_the_killed_agent_of_the_openai_agents_sdk_runs_no_tool_twice_that_ended(url):
    out = run(url, CLIENT / "examples" / "openai_agents_killed.py")
    assert out.count("`find` runs") == 1 and out.count("`book` runs, key seat-HAT136, attempt") == 2
    assert "it was killed" in out and "You are booked. 6\nit ended with 0" in out


def test_the_killed_agent_of_pydantic_ai_asks_nothing_and_runs_no_tool_twice_that_ended(url):
    out = run(url, CLIENT / "examples" / "pydantic_ai_killed.py")
    assert out.count("`find` runs") == 1 and out.count("`book` runs") == 2 and "it was killed" in out
    assert [out.count(f"asked with {n} messages") for n in (1, 3, 5)] == [1, 1, 1]
    assert "You are booked: B-1009.\nit ended with 0" in out


def test_the_package_says_that_it_is_typed():
    assert Path(runlog.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://user:secret@host", "nothing", "http://host:1:2", "local:./journal", "", []]
)
def test_what_is_not_a_servers_url_is_refused(url):
    with pytest.raises(runlog.Usage):
        runlog.connect(url)


def test_a_token_does_not_leave_the_machine_in_clear(monkeypatch, tmp_path):
    with pytest.raises(runlog.Usage):
        runlog.Config("http://journal.example", token="secret")
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("RUNLOG_TOKEN_FILE", str(tmp_path / "token"))
    assert runlog.Config("https://journal.example").read_token() == "secret"
    assert "secret" not in repr(runlog.Config("https://journal.example", token="secret"))
    with pytest.raises(runlog.Usage, match="over https"):
        runlog.Config("http://journal.example")
