"""Adapts the requests and checks of schemathesis to rules that a schema cannot express, and shortens its waits."""

import re
from urllib.parse import parse_qs, unquote, urlsplit

import schemathesis

# How long the server may wait, milliseconds: the log never reaches most of the requested positions.
DEADLINE = 100

# The journal's partitions: most of the requested partitions would not exist.
PARTITIONS = 4
PLACE = re.compile("((?:at-least=)?)([0-9]+):([0-9:]+)")

# Messages of refused requests that match their schema. No schema can say that a cursor comes from the page
# before, that a position is in the log, which one of several parameters is needed, which payloads schemas/avsc allows, or which
# schema version this server writes.
UNSAID = re.compile(
    "is not a cursor that this server gave|is not a cursor of the changes of this index|the cursor belongs to another query|not a cursor of this list"
    "|the journal has no partition|is in partition [0-9]+, not in [0-9]+|cannot skip offset [0-9]+"
    "|can be read, and its partition did not stop there"
    "|log id .* was named, and this server reads|an acceptance needs either a `run_id` or `unknown_runs`"
    "|needs args, a fingerprint or a key|and this server writes at most version"
    "|contradicted effects have ended: leave out|return=ack excludes|also= needs|an outcome needs a position or a record_id|a query of events needs"
    # `date-time` has years before 1970, too.
    "|is not a time of RFC 3339 from 1970 on|is not a payload type"
    # JSON Schema accepts 1.0 as an integer; the server does not.
    "|invalid type: floating point `-?[0-9.e+]+`, expected u(32|64)"
    "|^record [0-9]+: |^the record: |append the record whole"
)


@schemathesis.hook
def before_call(context, case, kwargs):
    # The run is named twice.
    if case.path.endswith(("/records", "/contents")) and case.meta.generation.mode.is_positive:
        for record in case.body if isinstance(case.body, list) else [case.body]:
            if isinstance(record, dict):
                record["run_id"] = unquote(str(case.path_parameters["run"]))
    query = case.query
    if not isinstance(query, dict):
        return
    for name in ("as_of", "consistency", "position"):
        place = PLACE.fullmatch(str(query.get(name)))
        if place:
            query[name] = f"{place[1]}{int(place[2]) % PARTITIONS}:{place[3]}"
            query.setdefault("deadline_ms", DEADLINE)
    # Changes only deadlines that are too long: a valid value beside an invalid value makes schemathesis doubt a
    # refusal.
    asked = str(query.get("deadline_ms", ""))
    if asked.isdigit() and DEADLINE < int(asked) < 1 << 64:
        query["deadline_ms"] = DEADLINE
    # Without `until_end` the stream stays open until the server ends.
    if case.path.endswith(("/tail", "/changes")) and str(query.get("until_end", False)).lower() == "false":
        query["until_end"] = "true"


@schemathesis.hook
def filter_failure(context, failure, case, response):
    name = type(failure).__name__
    if name == "RejectedPositiveData":
        return not UNSAID.search(response.json().get("detail", ""))
    if name == "AcceptedNegativeData" and "in query - violates `additionalProperties`" in failure.message:
        # An unknown parameter whose value adds no text to the URL.
        return not set(parse_qs(urlsplit(response.request.url).query, keep_blank_values=True)) <= declared(case)
    return True


def declared(case):
    return {parameter.name for parameter in case.operation.query}
