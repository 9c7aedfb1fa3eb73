"""`python -m kills [KILLS] [--seed N] [--rust SHARE]`: kills, compares, and prints both."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from .audit import audit
from .fleet import Fleet, report

parser = argparse.ArgumentParser(prog="scripts/python.sh kills")
parser.add_argument("kills", nargs="?", type=int, default=1000, help="how many processes to kill [1000]")
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of chance [random]")
parser.add_argument("--rust", type=float, default=0.25, help="share of agents in Rust [0.25]")
options = parser.parse_args()

with tempfile.TemporaryDirectory(prefix="runlog-kills-") as folder:
    begun = time.monotonic()
    fleet = Fleet(Path(folder), options.kills, options.seed, rust=options.rust)
    try:
        fleet.run()
        seconds = time.monotonic() - begun
        counted, differences = audit(fleet)
    finally:
        print(report(fleet, time.monotonic() - begun), flush=True)
        fleet.stop()
print("\n".join(f"{count:6}  {what}" for what, count in counted.items()))
print("\n".join(differences[:50]) or "no booking twice, none lost, every answer is in the journal")
sys.exit(bool(differences))
