// Canonical JSON and fingerprints match the vectors that all clients share.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { argsSha256, canonicalText, encode, fingerprint, parse, Refused } from "../dist/json.js";
import { sha256Hex } from "../dist/sha256.js";

const vectors = JSON.parse(readFileSync(new URL("../../../schemas/vectors/canonical.json", import.meta.url), "utf8"));

test("every_vector_has_its_canonical_form_and_fingerprint", () => {
  for (const vector of vectors) {
    if (vector.refused) {
      const refused = (error) => error instanceof Refused && error.code === vector.refused;
      assert.throws(() => canonicalText(vector.input), refused, vector.name);
      continue;
    }
    assert.equal(canonicalText(vector.input), vector.canonical, vector.name);
    // What is sent and read again has the same fingerprint.
    const value = parse(encode(parse(vector.input)));
    assert.equal(argsSha256(value), vector.args_sha256, vector.name);
    assert.equal(fingerprint(vector.tool_name ?? "", argsSha256(value)), vector.fingerprint, vector.name);
  }
  assert.ok(vectors.length > 90);
});

test("a_number_keeps_its_digits_and_its_type_when_it_is_sent_and_read", () => {
  const value = { id: 1234567890123456789n, sum: 1e20, small: 0.1, count: 12, "__proto__": 3, big: 2 ** 53 };
  const read = parse(encode(value));
  assert.deepEqual(read, value);
  assert.equal(typeof read.id, "bigint");
  assert.equal(typeof read.sum, "number");
});

test("sha256_agrees_with_the_platform_at_each_length_around_its_blocks", () => {
  for (let length = 0; length < 200; length++) {
    const text = "é".repeat(length % 7) + "x".repeat(length);
    assert.equal(sha256Hex(text), createHash("sha256").update(text).digest("hex"));
  }
});
