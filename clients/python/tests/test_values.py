"""What agents pass to tools and get from them: one text for each value, in every process and every version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import values
from runlog._json import args_sha256, fingerprint, to_json

FINGERPRINTS = json.loads((Path(__file__).parent / "fingerprints.json").read_text(encoding="utf-8"))
"""Of the named values as arguments of a tool `tool`. Those of `first` had one before dates, sets and the like were values."""


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", FINGERPRINTS["first"])
def test_a_value_keeps_the_fingerprint_that_it_had(name):
    assert fingerprint("tool", args_sha256(to_json(values.NAMED[name]))) == FINGERPRINTS["first"][name]
