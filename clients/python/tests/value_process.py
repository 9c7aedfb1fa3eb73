"""`python -m value_process URL RUN SEED` makes a call with each value of `values`, and prints the fingerprints and the effects.

`test_values` runs it in several processes, some with another version of Python, whose environment has few packages.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import values
from runlog import sync
from runlog._json import args_sha256, fingerprint
from runlog._values import arguments_json


def main(url: str, run_id: str, seed: str) -> dict[str, Any]:
    """Each value is an argument, and the result is left out: the effects count."""
    nested = [value for _, value in values.nestings(200, int(seed))]
    effects: list[str] = []
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for value in (*values.NAMED.values(), *nested):
            run.call("tool", {"value": value}, lambda call: effects.append(call.id))

    def found_by(value: object) -> str:
        return fingerprint("tool", args_sha256(arguments_json(value)))

    return {
        "version": sys.version.split()[0],
        "named": {name: found_by(value) for name, value in values.NAMED.items()},
        "nested": [found_by(value) for value in nested],
        "calls": len(values.NAMED) + len(nested),
        "effects": len(effects),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
