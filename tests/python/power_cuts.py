#!/usr/bin/env python3
"""Cuts the power under an index in the middle of projecting, and asks `runlog verify` what the index is worth then.

    tests/python/power_cuts.py RUNLOG SAMPLES [ROUNDS]

RUNLOG is the command, SAMPLES the folder of recorded runs, ROUNDS how often (20). Root only, on Linux with mkfs.ext4.

The index is on ext4 in a file, by way of a loop device. The file has what the file system handed to its disk, and nothing of
what was still in memory: a copy of it is what a power cut leaves. Before the cut the newest write-ahead log is brought to
disk, as the system may do at any time, and nothing else, so the order of two logs is left to whoever writes them.

Prints a line a round: the logs' bytes as they were written, and what is left of them. Exits 0 where the index was right each
time and half of the cuts came upon two logs; otherwise 1. While it runs, the system writes nothing back by itself.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WRITE_BACK = pathlib.Path("/proc/sys/vm/dirty_writeback_centisecs")
# Of recorded runs, each under names of its own: some ten memtables of one partition.
COPIES = 40
DISK_BYTES = 1_500_000_000
# Seconds.
READY_MAX = 60
HUNT_MAX = 12


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


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


class Disk:
    """A file system in a file."""

    def __init__(self, image, at):
        self.image, self.at = image, at
        at.mkdir(exist_ok=True)
        run("mount", "-o", "loop", image, at)

    def logs(self):
        """The write-ahead logs and their bytes, oldest first."""
        found = {}
        for path in sorted(self.at.rglob("[0-9]*.log")):
            try:
                found[path] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found

    def close(self):
        run("umount", "-l", self.at)


def journal(runlog, samples, data):
    data.mkdir()
    server = Server(runlog, data, "--partitions", "1")
    recorded = sorted(samples.glob("tau-bench/*.json"))
    for number in range(COPIES):
        imported = server.ask("import", "--run-prefix", f"copy-{number}-", "tau-bench", *recorded)
        if imported.returncode != 0:
            sys.exit(f"import: {imported.stderr}{imported.stdout}")
    server.end()
    shutil.rmtree(data / "index")


def on(disk, filled, data):
    """The journal, with its index on a disk."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(filled, data)
    (disk.at / "index").mkdir(exist_ok=True)
    (data / "index").symlink_to(disk.at / "index")
    return data


def cut(runlog, filled, folder):
    """What was written of the logs, what is left, and whether the index is right."""
    image, copy = folder / "image", folder / "copy"
    for path in (image, copy):
        path.unlink(missing_ok=True)
    run("truncate", "-s", DISK_BYTES, image)
    run("mkfs.ext4", "-q", "-F", image)
    disk = Disk(image, folder / "disk")
    try:
        os.sync()
        server = Server(runlog, on(disk, filled, folder / "before"))
        time.sleep(random.uniform(0.3, 3))
        until = time.monotonic() + HUNT_MAX
        # Two logs, the second of which has something, are there for some milliseconds at a time.
        while time.monotonic() < until and len([size for size in disk.logs().values() if size > 0]) < 2:
            time.sleep(0.0005)
        server.process.send_signal(signal.SIGSTOP)
        written = disk.logs()
        for newest in list(written)[-1:]:
            opened = os.open(newest, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)
        # What was handed to the disk before arrives.
        time.sleep(0.3)
        run("cp", "--sparse=always", image, copy)
        server.end(signal.SIGKILL)
    finally:
        disk.close()
    disk = Disk(copy, folder / "disk-after")
    try:
        left = {path.name: size for path, size in disk.logs().items()}
        server = Server(runlog, on(disk, filled, folder / "after"))
        verified = server.ask("verify")
        server.end()
    finally:
        disk.close()
    try:
        right = json.loads(verified.stdout)["equal"]
    except (ValueError, KeyError):
        sys.exit(f"verify: {verified.stderr}{verified.stdout}")
    return {path.name: size for path, size in written.items()}, left, right


def main():
    if len(sys.argv) not in (3, 4) or os.geteuid() != 0:
        sys.exit(__doc__)
    runlog, samples = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 20
    write_back = WRITE_BACK.read_text()
    wrong = several = 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runlog-power-"))
    try:
        journal(runlog, samples, folder / "filled")
        WRITE_BACK.write_text("0")
        for number in range(rounds):
            written, left, right = cut(runlog, folder / "filled", folder)
            wrong += not right
            several += len(written) > 1
            print(number, "right" if right else "WRONG", written, left, flush=True)
    finally:
        WRITE_BACK.write_text(write_back)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{rounds} cuts, {several} upon several logs, {wrong} left a wrong index")
    sys.exit(1 if wrong or several * 2 < rounds else 0)


main()
