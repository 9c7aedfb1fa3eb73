#!/usr/bin/env python3
"""test_report.py JUNIT STATUS DOCTESTS [BINARY...]   Prints the results by binary, the ten slowest tests, and `N passed, N failed`.

JUNIT is nextest's report, STATUS its exit code, DOCTESTS the output of `cargo test --doc`. A BINARY that ran no test counts as a
failure, and so do a missing report and a nextest that failed without a failed test, as it does if it left tests out. Exit code:
0 if everything passed, 1 otherwise."""

import re
import sys
import xml.etree.ElementTree as xml

junit, status, doctests, *expected = sys.argv[1:]
rows, slowest = {}, []
try:
    suites = xml.parse(junit).getroot().findall("testsuite")
except (OSError, xml.ParseError) as error:
    print(f"nextest left no report: {error}")
    suites, rows["nextest"] = [], [0, 1, 0.0]
for suite in suites:
    row = rows.setdefault(suite.get("name"), [0, 0, 0.0])
    for case in suite.findall("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        row[failed] += 1
        row[2] += float(case.get("time", 0))
        slowest.append((float(case.get("time", 0)), case.get("name")))
if status != "0" and not any(failed for _, failed, _ in rows.values()):
    print(f"nextest exited with {status}, although no test failed: see its last lines")
    rows["nextest"] = [0, 1, 0.0]
with open(doctests) as lines:
    results = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed.* finished in ([\d.]+)s", lines.read(), re.M)
# No result at all: they do not compile.
rows["doctests"] = [sum(map(float, column)) for column in zip(*results)] if results else [0, 1, 0.0]
for binary in expected:
    if sum(rows.get(binary, [0, 0])[:2]) == 0:
        print(f"{binary} ran no test")
        rows[binary] = [0, 1, 0.0]

print("\n  passed  failed  seconds")
for name, (passed, failed, seconds) in sorted(rows.items()):
    print(f"{passed:8.0f}{failed:8.0f}{seconds:9.1f}  {name}")
print("\nthe slowest, in seconds:")
for seconds, name in sorted(slowest, reverse=True)[:10]:
    print(f"{seconds:8.1f}  {name}")
passed, failed = (int(sum(row[index] for row in rows.values())) for index in (0, 1))
print(f"\n{passed} passed, {failed} failed")
sys.exit(failed > 0)
