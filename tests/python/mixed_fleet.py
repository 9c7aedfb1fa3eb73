#!/usr/bin/env python3
"""Checks that a server of an older build and this build's server answer the same about one log.

    tests/python/mixed_fleet.py OLD_RUNLOG NEW_RUNLOG

On one local log the old server runs, then the new one, then the old one again. The new build's `runlog conformance` runs against
the first two, so the log has a run for each rule. After each change of the server, all answers about runs, records, calls and
anomalies have to be as they were, and the new server's answers have all members of the old ones. The old server refuses an index
of another layout by name, and then builds its own. Exits 0 if all of this holds. Printed, and no failure, are differences in what a
person decides by (evidence, class, basis), and rules that the old server breaks or does not list.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

# Time limit of a start and of a request, seconds.
WAIT = 120
# Members that differ between two questions, or contain the server's own offsets into a list.
VOLATILE = {"age_millis", "cursor", "next_cursor", "state"}
# Members about undecided effects, by which no record is judged that names the state of its effect by a revision.
UNDECIDED = {"evidence", "basis", "revision", "class", "reason", "resumable", "contradicting", "contradictions", "contradicted"}
PAGE = "consistency=latest&limit=1000"
# The differences that are printed.
SHOWN_MAX = 20


def environment(binary):
    return {**os.environ, "LD_LIBRARY_PATH": str(binary.parent)}


class Server:
    """`runlog serve` of a build on a folder."""

    def __init__(self, binary, folder):
        self.errors = open(folder / f"errors-{time.monotonic_ns()}", "w+")
        command = [binary, "serve", "--local", "--data", folder / "data", "--partitions", "2", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, env=environment(binary), stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        line = self.process.stdout.readline()
        self.url = json.loads(line)["listening"] if line else None

    def await_ready(self):
        until = time.monotonic() + WAIT
        while self.url and self.get("/readyz")[0] != 200:
            if time.monotonic() > until:
                sys.exit(f"not ready in {WAIT} s: {self.get('/readyz')}")
            time.sleep(0.1)
        return self

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=WAIT) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, None

    def end(self):
        """Ends the server and returns its stderr."""
        self.process.terminate()
        self.process.wait(WAIT)
        self.errors.seek(0)
        return self.errors.read()


def pages(server, path, member):
    items, cursor = [], ""
    while cursor is not None:
        more = f"&cursor={urllib.parse.quote(cursor)}" if cursor else ""
        status, page = server.get(f"{path}{'&' if '?' in path else '?'}{PAGE}{more}")
        if status != 200:
            sys.exit(f"{path}: {status}")
        items += page[member]
        cursor = page["next_cursor"]
    return items


def answers(server):
    """All answers about the journal, by path."""
    found = {}
    for run in pages(server, "/v1/runs", "runs"):
        path = f"/v1/runs/{urllib.parse.quote(run['run_id'], safe='')}"
        for what in ("", "/recovery?from_start=true&full=true", "/records?raw=true&whole=true&limit=1000"):
            found[path + what] = server.get(path + what)
        recovery = found[f"{path}/recovery?from_start=true&full=true"][1] or {}
        for call in recovery.get("completed", []) + recovery.get("pending", []):
            if call.get("fingerprint"):
                lookup = f"{path}/lookup?fingerprint={urllib.parse.quote(call['fingerprint'])}"
                found[lookup] = server.get(lookup)
    for path, member in (("/v1/effects", "effects"), ("/v1/anomalies", "anomalies")):
        found[path] = pages(server, path, member)
    return found


def differences(old, new, path):
    """Where two answers differ. An object of one of them may have more members."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in (old.keys() & new.keys()) - VOLATILE:
            yield from differences(old[name], new[name], f"{path} {name}")
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        for one, other in zip(old, new):
            yield from differences(one, other, path)
    elif old != new:
        yield f"{path}: {json.dumps(old)[:200]} before, {json.dumps(new)[:200]} now"


def missing(old, new, path):
    """Members of the old answer that the new one lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from (f"{path} {name}: gone" for name in old.keys() - new.keys())
        for name in old.keys() & new.keys():
            yield from missing(old[name], new[name], f"{path} {name}")
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        for one, other in zip(old, new):
            yield from missing(one, other, path)


def is_undecided(text):
    path, *members = text.partition(":")[0].split(" ")
    return "/records" not in path and path != "/v1/anomalies" and not UNDECIDED.isdisjoint(members)


def compare(what, before, now, check):
    """Prints the differences, and returns whether only members about undecided effects differ."""
    found = sorted(text for path in before.keys() | now.keys() for text in check(before.get(path), now.get(path), path))
    undecided = [text for text in found if is_undecided(text)]
    others = [text for text in found if not is_undecided(text)]
    print(f"  {what}: {len(now)} answers, {len(others)} differences, and {len(undecided)} about undecided effects")
    for text in others[:SHOWN_MAX] + undecided[:SHOWN_MAX]:
        print(f"    {text}")
    return not others


def conformance(binary, server):
    """Runs the rules; returns whether none fails."""
    command = [binary, "--json", "--server", server.url, "conformance", "--partition-rules"]
    ran = subprocess.run(command, env=environment(binary), capture_output=True, text=True, timeout=600)
    report = json.loads(ran.stdout)
    print(f"  conformance: {report['passed']} passed, {report['failed']} failed, {report['skipped']} skipped")
    for line in report["rules"]:
        if line["outcome"] == "fail":
            print(f"  {line['name']}: {line['detail']}")
    return report["failed"] == 0


def main(old_binary, new_binary):
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        print("the old server")
        server = Server(old_binary, folder).await_ready()
        conformance(new_binary, server)
        first = answers(server)
        server.end()

        print("the new server, with the old index")
        server = Server(new_binary, folder).await_ready()
        second = answers(server)
        same = compare("the same values", first, second, differences)
        same &= compare("no member is gone", first, second, missing)
        same &= conformance(new_binary, server)
        third = answers(server)
        server.end()

        print("the old server again, with the new index")
        server = Server(old_binary, folder)
        if server.url is None:
            refusal = server.end()
            print(f"  refused: {refusal.strip()[-300:]}")
            same &= "layout" in refusal
            shutil.rmtree(folder / "data" / "index")
            server = Server(old_binary, folder)
        same &= compare("the same values", answers(server.await_ready()), third, differences)
        server.end()
        return same
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(0 if main(*(pathlib.Path(binary).resolve() for binary in sys.argv[1:])) else 1)
