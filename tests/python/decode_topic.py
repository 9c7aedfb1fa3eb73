"""Decodes every record of a topic with the schema files alone, one for each version.

    decode_topic.py BOOTSTRAP TOPIC v1.avsc v2.avsc

Prints one JSON object per record, in offset order per partition. Exits 1 at the first record that does not match its
schema: another framing or fingerprint, a datum that does not decode, bytes after the datum, or a datum whose encoding
differs from its bytes.
"""

import io
import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

PATIENCE_SECONDS = 30


def messages(bootstrap, topic):
    """Every message that is in the topic now."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "decode-topic",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    })
    partitions = consumer.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions
    for partition in sorted(partitions):
        place = TopicPartition(topic, partition, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)
        consumer.assign([place])
        offset = -1
        while offset + 1 < end:
            message = consumer.poll(PATIENCE_SECONDS)
            if message is None or message.error():
                sys.exit(f"partition {partition} has no message after offset {offset}: {message and message.error()}")
            offset = message.offset()
            yield message
    consumer.close()


def main(bootstrap, topic, *schema_files):
    schemas = {}
    for name in schema_files:
        with open(name, encoding="utf-8") as file:
            raw = json.load(file)
        # The wire has the Rabin fingerprint, little-endian.
        rabin = bytes.fromhex(fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO"))
        schemas[b"\xc3\x01" + rabin] = parse_schema(raw)
    for message in messages(bootstrap, topic):
        place, value = f"{message.partition()}:{message.offset()}", message.value()
        schema = schemas.get(value[:10])
        if schema is None:
            sys.exit(f"{place} begins with {value[:10].hex()}, not with one of {[key.hex() for key in schemas]}")
        source = io.BytesIO(value[10:])
        record = schemaless_reader(source, schema, None, return_record_name=True)
        if source.read():
            sys.exit(f"{place} has bytes after its datum")
        again = io.BytesIO()
        schemaless_writer(again, schema, record)
        if again.getvalue() != value[10:]:
            sys.exit(f"{place} is encoded to other bytes than the record has")
        name, payload = record["payload"]
        print(json.dumps({
            "partition": message.partition(),
            "offset": message.offset(),
            "key": (message.key() or b"").decode(),
            "run_id": record["run_id"],
            "record_id": record["record_id"],
            "record_kind": record["record_kind"],
            "writer_epoch": record["writer_epoch"],
            "writer_seq": record["writer_seq"],
            "journal_seq": record["journal_seq"],
            "payload_type": record["facts"]["payload_type"],
            "payload_name": name.rpartition(".")[2],
            "payload_members": sorted(payload),
            "headers": {name: value.decode() for name, value in message.headers() or []},
        }))


if __name__ == "__main__":
    main(*sys.argv[1:])
