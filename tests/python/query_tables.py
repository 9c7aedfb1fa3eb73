"""Asks the tables of an export by DuckDB: query_tables.py FOLDER

Prints a line of JSON: counts and joins that a server's own answers are compared with.
"""

import json
import pathlib
import sys

import duckdb

folder = pathlib.Path(sys.argv[1])
tables = ["runs", "records", "tool_calls", "effects", "checkpoints", "anomalies"]
for table in tables:
    duckdb.sql(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{folder / table}.parquet')")


def rows(query: str) -> list[list[object]]:
    return [list(row) for row in duckdb.sql(query).fetchall()]


result = {
    "counts": {table: rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables},
    # Each run: the values of its row beside the values computed from its records.
    "runs": rows("""
        SELECT run_id, r.status, r.records, count(*), max(c.journal_seq) + 1 = any_value(r.next_journal_seq), any_value(r.hash)
        FROM runs r JOIN records c USING (run_id)
        GROUP BY run_id, r.status, r.records ORDER BY run_id"""),
    # Each call with the record that answers it: joined by the record ids of the log itself.
    "calls": rows("""
        SELECT t.run_id, t.tool_name, t.arguments, t.occurrence, t.status, t.result, t.error_message, e.status, e.id
        FROM tool_calls t JOIN effects e ON (e.run_id, e.id) = (t.run_id, t.record_id)
        ORDER BY t.run_id, t.journal_seq"""),
    "answered": rows("""
        SELECT count(*) FROM tool_calls t
        JOIN records a ON a.run_id = t.run_id AND a.record_id = t.ended_by
        WHERE a.answers = t.record_id AND a."at" = t.ended_at""")[0][0],
    "effects": rows("SELECT run_id, kind, id, tool_name, occurrence, status FROM effects"),
    "pending": rows("SELECT run_id, id, class, evidence, revision FROM effects WHERE status = 'pending'"),
    "anomalies": rows('SELECT run_id, record_id, reason, "partition", "offset" FROM anomalies'),
    "hidden": rows("SELECT record_id, hidden, payload FROM records WHERE hidden IS NOT NULL ORDER BY record_id"),
    "checkpoints": rows("SELECT run_id, count(*), sum(own_messages)::BIGINT FROM checkpoints GROUP BY run_id ORDER BY run_id"),
}
print(json.dumps(result, default=str))
