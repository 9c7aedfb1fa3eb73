#!/usr/bin/env python3
"""Checks deploy/systemd/runlog.service with systemd's own tools, and the system calls of a server against the unit's filter.

    tests/python/systemd.py

systemd-analyze and strace must be on PATH, and bin/runlog must be there; scripts/systemd.sh does this. Exits 0 if all claims hold.
A server under a running systemd is not tested.
"""

import asyncio
import pathlib
import re
import subprocess
import sys
import tempfile

import journal
from journal import TOP, Connection, Server, run, turn

UNIT = TOP / "deploy/systemd/runlog.service"
# systemd's score of a unit, from 0 (confined) to 10, in tenths: without hardening it is 92 or more.
EXPOSURE_MAX = 20
ROUNDS = 200


def claim(text):
    print(f"holds: {text}", flush=True)


def settings(name):
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def verified(folder, text):
    """What systemd says about a unit, with a command and a user that this machine has."""
    text = text.replace("/opt/runlog/bin/runlog", "/bin/true").replace("User=runlog", "User=daemon").replace("Group=runlog", "Group=daemon")
    (folder / "runlog.service").write_text(text)
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", folder / "runlog.service"], capture_output=True, text=True, timeout=60)
    return ran.stdout + ran.stderr


def accepted(folder):
    found = verified(folder, UNIT.read_text())
    assert not found, found
    found = verified(folder, UNIT.read_text().replace("ProtectHome=", "ProtectHme="))
    assert "ProtectHme" in found, "systemd does not find a misspelt setting"
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", UNIT)
    claim(f"systemd accepts the unit, and scores its exposure with at most {EXPOSURE_MAX / 10} of 10")


def calls_of(groups):
    """The system calls of systemd's groups, which contain other groups."""
    calls = set()
    for group in groups:
        lines = [line.strip() for line in run("systemd-analyze", "syscall-filter", "--no-pager", group).splitlines()[1:]]
        lines = [line for line in lines if line and not line.startswith("#")]
        calls |= {line for line in lines if not line.startswith("@")}
        calls |= calls_of([line for line in lines if line.startswith("@")])
    return calls


async def work(server):
    connection = await Connection.open(server.port)
    for number in range(ROUNDS):
        status, body = await connection.ask("POST", "/v1/runs/talk/records", turn("talk", f"r-{number}", "x" * 2000))
        assert status == 200, body
    await connection.request_call("trip")
    for path in ("/v1/runs/talk/records", "/v1/runs?status=open", "/v1/effects?pending=true", "/v1/doctor", "/metrics"):
        status, body = await connection.ask("GET", path)
        assert status == 200, body
    status, body = await connection.ask("POST", "/v1/verify")
    assert status == 200, body
    connection.close()


def filtered(folder):
    """Runs a server twice on one folder, so that it also recovers, and compares its system calls with the unit's filter."""
    allow, deny = settings("SystemCallFilter")
    assert deny.startswith("~")
    allowed = calls_of(allow.split()) - calls_of(deny[1:].split())
    traced = folder / "strace"
    traced.mkdir()
    wrapper = folder / "traced-runlog"
    wrapper.write_text(f'#!/bin/sh\nexec strace -D -f -ff -qq -e signal=none -s 0 -o {traced}/calls "{journal.RUNLOG}" "$@"\n')
    wrapper.chmod(0o700)
    journal.RUNLOG = wrapper
    for _ in range(2):
        server = Server(folder / "server", "--local")
        try:
            asyncio.run(work(server))
        finally:
            assert server.end() == 0
    text = "\n".join(file.read_text(errors="replace") for file in traced.iterdir())
    made = set(re.findall(r"^(\w+)\(", text, re.MULTILINE))
    assert {"execve", "clone3", "fdatasync", "accept4"} <= made, made
    # systemd itself calls execve, before the filter or with it allowed.
    assert made <= allowed, f"the unit forbids {sorted(made - allowed)}"
    families = set(re.findall(r"^socket\((AF_\w+)", text, re.MULTILINE))
    assert families <= set(settings("RestrictAddressFamilies")[0].split()), families
    executable = re.findall(r"^mmap\(.*PROT_WRITE\|PROT_EXEC.*|^mprotect\(.*PROT_EXEC.*", text, re.MULTILINE)
    assert not executable, f"MemoryDenyWriteExecute forbids {executable[:3]}"
    claim(f"a server makes {len(made)} of the {len(allowed)} allowed system calls and no other, and no memory executable")


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="runlog-systemd-") as folder:
        folder = pathlib.Path(folder)
        try:
            accepted(folder)
            filtered(folder)
        except AssertionError as failure:
            print(f"BROKEN: {failure}", flush=True)
            sys.exit(1)


main()
