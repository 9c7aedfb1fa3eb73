#!/usr/bin/env python3
"""Cuts the power under an index in the middle of projecting, then checks the index with `runlog verify`.

    tests/python/power_cuts.py RUNLOG SAMPLES [ROUNDS]

RUNLOG is the command, SAMPLES the folder of recorded runs, ROUNDS how often (20). Root only, on Linux with mkfs.ext4.

The index is on ext4 in a file, by way of a loop device. The file contains the writes that reached the disk, without the
writes that were still in memory: a copy of it is the disk after a power cut. Half of the cuts are made while a table is being written.

Prints a line a round: the applied offset, the offset of the index after the cut, and whether the index is right there and
after it has caught up. Exits 0 if the index was right each time, and at least half of the cuts lost a part of the applied
records and kept a part; otherwise 1. While it runs, the system writes nothing back by itself.
"""

import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

WRITE_BACK = pathlib.Path("/proc/sys/vm/dirty_writeback_centisecs")
DISK_BYTES = 1_500_000_000
# Seconds.
READY_MAX = 60
TABLE_MAX = 60
# Records.
APPLIED_MIN = 500


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def wait_until(reached, pause, late):
    """Polls each `pause` seconds. Ends with an error after `TABLE_MAX`."""
    until = time.monotonic() + TABLE_MAX
    while not reached():
        if time.monotonic() > until:
            sys.exit(f"{late} within {TABLE_MAX} s")
        time.sleep(pause)


class Server:
    """`runlog serve` on a folder."""

    def __init__(self, runlog, data, *flags):
        self.runlog = runlog
        self.errors = open(data / "errors", "w+")
        command = [runlog, "--json", "serve", "--local", "--data", data, "--listen", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        # Its first line says where it listens.
        self.url = json.loads(self.process.stdout.readline())["listening"]

    def ask(self, *arguments):
        command = [self.runlog, "--json", "--server", self.url, *arguments]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(READY_MAX)


    def verified(self):
        """Whether the index equals the log up to the offset of the index."""
        verified = self.ask("verify")
        try:
            return json.loads(verified.stdout)["equal"]
        except (ValueError, KeyError):
            sys.exit(f"verify: {verified.stderr}{verified.stdout}")

    def applied(self):
        """The next offset of the only partition."""
        return json.loads(self.ask("doctor").stdout)["partitions"][0]["applied"]

    def await_records(self, least):
        wait_until(lambda: self.applied() >= least, 0.05, f"the index has no {least} records")


class Disk:
    """A file system in a file."""

    def __init__(self, image, at):
        self.image, self.at = image, at
        at.mkdir(exist_ok=True)
        run("mount", "-o", "loop", image, at)

    def await_table(self):
        """Waits until another table is begun."""
        before = set(self.at.rglob("[0-9]*.sst"))
        wait_until(lambda: not set(self.at.rglob("[0-9]*.sst")) <= before, 0.0005, "the index flushed no table")

    def close(self):
        run("umount", "-l", self.at)


class Importer(threading.Thread):
    """Imports the recorded runs again and again, each time under names of their own, until the server is gone."""

    def __init__(self, server, samples):
        super().__init__(daemon=True)
        self.server, self.recorded = server, sorted(samples.glob("tau-bench/*.json"))
        self.start()

    def run(self):
        for number in itertools.count():
            imported = self.server.ask("import", "--run-prefix", f"copy-{number}-", "tau-bench", *self.recorded)
            if imported.returncode != 0:
                return


def on(disk, data):
    """A data folder with its index on a disk."""
    data.mkdir(exist_ok=True)
    (disk.at / "index").mkdir(exist_ok=True)
    (data / "index").unlink(missing_ok=True)
    (data / "index").symlink_to(disk.at / "index")
    return data


def cut(runlog, samples, folder, in_a_flush):
    """Cuts the power once. Returns the offset before the cut, the offset after it, and whether the index is right."""
    image, copy, data = folder / "image", folder / "copy", folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    for path in (image, copy):
        path.unlink(missing_ok=True)
    run("truncate", "-s", DISK_BYTES, image)
    run("mkfs.ext4", "-q", "-F", image)
    disk = Disk(image, folder / "disk")
    try:
        os.sync()
        server = Server(runlog, on(disk, data), "--partitions", "1")
        importer = Importer(server, samples)
        # The first table has the genesis alone, and a slow machine takes seconds to import the first run.
        disk.await_table()
        server.await_records(APPLIED_MIN)
        time.sleep(random.uniform(0.3, 3))
        applied = server.applied()
        if in_a_flush:
            disk.await_table()
        server.process.send_signal(signal.SIGSTOP)
        # Earlier writes reach the disk.
        time.sleep(0.3)
        run("cp", "--sparse=always", image, copy)
        server.end(signal.SIGKILL)
        importer.join(READY_MAX)
    finally:
        disk.close()
    disk = Disk(copy, folder / "disk-after")
    try:
        server = Server(runlog, on(disk, data), "--paused")
        left, right = server.applied(), server.verified()
        server.end()
        server = Server(runlog, data)
        # At `latest`: when it answers, the index has caught up.
        server.ask("runs", "--consistency", "latest", "--deadline", f"{READY_MAX}s")
        right = right and server.verified()
        server.end()
    finally:
        disk.close()
    return applied, left, right


def main():
    if len(sys.argv) not in (3, 4) or os.geteuid() != 0:
        sys.exit(__doc__)
    runlog, samples = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 20
    write_back = WRITE_BACK.read_text()
    wrong = partly = 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-power-"))
    try:
        WRITE_BACK.write_text("0")
        for number in range(rounds):
            applied, left, right = cut(runlog, samples, folder, number % 2 == 0)
            wrong += not right
            partly += 0 < left < applied
            print(number, "right" if right else "WRONG", f"applied {applied}, left {left}", flush=True)
    finally:
        WRITE_BACK.write_text(write_back)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{rounds} cuts, {partly} lost a part of the applied records, {wrong} left a wrong index")
    sys.exit(1 if wrong or partly * 2 < rounds else 0)


main()
