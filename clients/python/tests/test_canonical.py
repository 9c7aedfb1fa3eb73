"""Canonical JSON and fingerprints match the shared vectors."""

import json

import pytest

from conftest import TOP
from runlog._json import Refused, canonical, canonical_text, encode, fingerprint
from runlog._json import args_sha256 as hash_of

VECTORS = json.loads((TOP / "schemas" / "vectors" / "canonical.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_has_its_canonical_form_and_fingerprint(vector):
    if "refused" in vector:
        with pytest.raises(Refused) as refused:
            canonical_text(vector["input"])
        assert refused.value.args[0] == vector["refused"]
        return
    text = canonical_text(vector["input"])
    assert text == vector["canonical"]
    value = json.loads(vector["input"])
    if canonical(value) == text:  # numbers that Python reads as they are
        assert hash_of(value) == vector["args_sha256"]
        assert fingerprint(vector.get("tool_name", ""), vector["args_sha256"]) == vector["fingerprint"]


def test_most_vectors_survive_pythons_own_values():
    same = [v for v in VECTORS if "canonical" in v and canonical(json.loads(v["input"])) == v["canonical"]]
    assert len(same) > 30
    assert all(canonical_text(encode(json.loads(v["input"]))) == v["canonical"] for v in same)
