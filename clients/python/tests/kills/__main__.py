"""`python -m kills [KILLS] [--graph] [--seed N] [--rust SHARE] [--typescript SHARE]`: kills, compares, and prints both."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from .audit import audit
from .fleet import Fleet
from .graph import Kills

parser = argparse.ArgumentParser(prog="scripts/python.sh kills")
parser.add_argument("kills", nargs="?", type=int, help="how many processes to kill [1000; 200 with --graph]")
parser.add_argument(
    "--graph", action="store_true", help="kill the workers of a LangGraph graph, and not agents at the desk"
)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of chance [random]")
parser.add_argument("--rust", type=float, default=0.25, help="share of agents in Rust [0.25]")
parser.add_argument("--typescript", type=float, default=0, help="share of agents in TypeScript [0]")
options = parser.parse_args()

with tempfile.TemporaryDirectory(prefix="runlog-kills-") as folder:
    place, kills, seed = Path(folder), options.kills or (200 if options.graph else 1000), options.seed
    shares = {"rust": options.rust, "typescript": options.typescript}
    killed = Kills(place, kills, seed) if options.graph else Fleet(place, kills, seed, **shares)
    begun = time.monotonic()
    try:
        killed.run()
        differences = killed.differences if isinstance(killed, Kills) else audit(killed)
    finally:
        print(f"{killed.killed} kills in {time.monotonic() - begun:.0f} s, seed {seed}")
        print("\n".join(f"{count:6}  {what}" for what, count in sorted(killed.counts.items())), flush=True)
        killed.stop()
print("\n".join(differences[:50]) or "no effect twice under two keys, none lost, every answer is in the journal")
sys.exit(bool(differences))
