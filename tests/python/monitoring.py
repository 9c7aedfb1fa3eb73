#!/usr/bin/env python3
"""Scrapes a server with a real Prometheus, and asks every query of deploy/grafana/runlog.json and every selector of
deploy/prometheus/rules.yaml.

    tests/python/monitoring.py PROMETHEUS

Every query and selector must return a series, or is one of `ELSEWHERE`. No alert may fire. Exits 0 if all claims hold.
"""

import asyncio
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from journal import RUNLOG, TOP, WAIT, Connection, Server, create_token, free_port, run, turn

RULES = TOP / "deploy/prometheus/rules.yaml"
DASHBOARD = TOP / "deploy/grafana/runlog.json"
OPERATE = (TOP / "docs/operate.md").read_text()

# Selectors and queries without a series here, with the reason.
ELSEWHERE = {
    'kubelet_volume_stats_available_bytes{persistentvolumeclaim=~"data-.*runlog.*"}': "metrics of Kubernetes' kubelet",
    'runlog_http_requests_total{path="/readyz",status="503"}': "a server that is catching up or stopped",
    'runlog_http_requests_total{status="500"}': "a defect of the server",
}
# Labels that a target has in Kubernetes.
KUBERNETES_LABELS = {"namespace"}
SELECTOR = re.compile(r'\b((?:runlog_|process_|kubelet_)\w+|up\b)(\{(?:[^{}"]|"[^"]*")*\})?')
ROUNDS = 6


def claim(text):
    print(f"holds: {text}", flush=True)


def fetch(url):
    with urllib.request.urlopen(url, timeout=WAIT) as answer:
        return answer.read().decode()


class Prometheus:
    """A Prometheus with the rules, which scrapes one server every second, until `end`."""

    def __init__(self, program, folder, target):
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "runlog", "static_configs": [{"targets": [target]}]}],
        }
        folder.mkdir()
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.errors = open(folder / "errors", "w+")
        command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                   f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.errors)
        until = time.monotonic() + WAIT
        while True:
            try:
                fetch(f"{self.url}/-/ready")
                return
            except OSError:
                self.errors.seek(0)
                assert time.monotonic() < until and self.process.poll() is None, self.errors.read()
                time.sleep(0.1)

    def get(self, path, **parameters):
        return json.loads(fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def query(self, expression):
        """The series of a query that have a number."""
        found = self.get("query", query=expression)["result"]
        return [series["metric"] for series in found if not math.isnan(float(series["value"][1]))]

    def end(self):
        self.process.terminate()
        self.process.wait(WAIT)


def secrets(folder):
    """A certificate, a token for everything, and a token with a limit of one request per second."""
    folder.mkdir()
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90", "-subj",
        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem")
    (folder / "key.pem").chmod(0o600)
    every = create_token(folder, "operator", "append,read_meta,read_content,resolve,operate,audit", "*")
    run(RUNLOG, "--json", "--quiet", "token", "create", "--tokens", folder / "tokens.json", "--principal", "operator", "--scope",
        "audit", "--runs", "*", "--expires-in", "90d")
    limited = create_token(folder, "limited", "read_meta", "*")
    tokens = json.loads((folder / "tokens.json").read_text())
    tokens["limits"] = {"limited": {"requests_per_second": 1}}
    (folder / "tokens.json").write_text(json.dumps(tokens))
    return every, limited


async def work(server, admin, trust, every, limited, number):
    """Makes each kind of figure: appends of each outcome, reads, pending effects, refused requests and connections."""
    agent = await Connection.open(server.port, trust, every)
    other = await Connection.open(server.port, trust, limited)
    await agent.request_call(f"run-{number}")
    records = "/v1/runs/talk/records"
    found = [await agent.ask("POST", records, turn("talk", f"r-{number}", "x")) for _ in range(2)]
    outcomes = [json.loads(body)["outcome"] for _, body in found]
    assert outcomes == ["applied", "repeat"], found
    # Its writer does not have the run.
    stranger = turn(f"run-{number}", f"s-{number}", "x") | {"writer_id": "stranger", "writer_epoch": 9, "writer_seq": 1}
    status, body = await agent.ask("POST", f"/v1/runs/run-{number}/records", stranger)
    assert status == 409 or json.loads(body)["outcome"] == "refused", (status, body)
    status, body = await agent.ask("POST", records, {"run_id": "talk"})
    assert status == 400, body
    for path in ("/v1/runs", "/v1/runs/talk/records", "/v1/effects?pending=true"):
        status, body = await agent.ask("GET", path)
        assert status == 200, (path, body)
    # The audit log of this server is always full, so a decision is refused.
    payload = {"type": "effect_resolution", "request_record_id": "call", "decision": "not_done", "who": "jo", "why": "test"}
    decision = {"run_id": f"run-{number}", "record_id": "decision", "payload": payload}
    status, body = await agent.ask("POST", f"/v1/runs/run-{number}/records", decision)
    assert status == 503 and json.loads(body)["kind"] == "unavailable", (status, body)
    # The limit is a request in a second.
    refused = [(await other.ask("GET", "/v1/runs"))[0] for _ in range(100)]
    assert 429 in refused, refused
    plain = await Connection.open(server.port)
    await plain.send("GET", "/")
    await plain.reader.read()
    plain.close()
    fetch(f"{admin}/readyz")
    agent.close()
    other.close()


def names_of(text):
    """The names of the metrics of a scrape, as Prometheus stores them without the suffixes of a histogram."""
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    return {name + "_total" if kind == "counter" else name for name, kind in kinds}


def documented(text):
    """The names in the table of metrics of docs/operate.md."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (?:gauge|counter|histogram) \|", OPERATE, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(rows)))


def expanded(query):
    """A query of the dashboard with all jobs and instances."""
    return re.sub(r"\$(job|instance)\b", ".*", query).replace("$__rate_interval", "5m")


def check_selectors(prometheus, what, expression, used):
    for name, matchers in SELECTOR.findall(expression):
        selector = name + matchers
        if selector in ELSEWHERE:
            used.add(selector)
            assert not prometheus.query(selector), f"{selector} has a series: remove it from ELSEWHERE"
        else:
            assert prometheus.query(selector), f"{what}: no series of {selector}"


def check_rules(prometheus, used):
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    labels = set(prometheus.get("labels")) | KUBERNETES_LABELS
    for rule in rules:
        name = rule["name"]
        assert rule["health"] == "ok" and rule["state"] != "firing", rule
        check_selectors(prometheus, name, rule["query"], used)
        named = re.findall(r"\b(?:by|without|on) ?\(([\w, ]*)\)", rule["query"])
        named += re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
        named = set(re.findall(r"\w+", " ".join(named)))
        assert named <= labels, f"{name}: unknown labels {named - labels}"
        assert rule["labels"].keys() == {"severity"} and rule["annotations"].keys() == {"summary", "runbook"}, rule
        assert rule["annotations"]["runbook"] == f"docs/operate.md#{name.lower()}", rule["annotations"]
    alerts = {rule["name"] for rule in rules}
    runbooks = set(re.findall(r"^#+ (Runlog\w+)$", OPERATE, re.MULTILINE))
    assert alerts == runbooks, f"alerts without a runbook: {alerts - runbooks}; runbooks without an alert: {runbooks - alerts}"
    tested = set(re.findall(r"^        alertname: (\w+)$", (RULES.parent / "rules_test.yaml").read_text(), re.MULTILINE))
    assert alerts == tested, f"alerts that no test fires: {alerts - tested}"
    claim(f"{len(alerts)} alerts: each selector has a series, none fires, each has a runbook and a test that fires it")


def check_dashboard(prometheus, used):
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [(column, line) for panel in panels for place in [panel["gridPos"]]
             for column in range(place["x"], place["x"] + place["w"]) for line in range(place["y"], place["y"] + place["h"])]
    assert len(set(cells)) == len(cells) and all(column < 24 for column, _ in cells), "panels overlap"
    asked = 0
    for panel in panels:
        for target in panel.get("targets", []):
            what, query = f"panel {panel['title']}", target["expr"]
            if query in ELSEWHERE:
                used.add(query)
                continue
            asked += 1
            found = prometheus.query(expanded(query))
            assert found, f"{what}: no series of {query}"
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(legend <= series.keys() for series in found), f"{what}: a label of {legend} is missing in {found[0]}"
            check_selectors(prometheus, what, expanded(query), used)
    for variable in dashboard["templating"]["list"][1:]:
        inside, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        assert all(label in series for series in prometheus.query(expanded(inside))), variable["name"]
    claim(f"each of {asked} queries of the dashboard returns a series, with the labels of its legend")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="runlog-monitoring-") as folder:
        folder = pathlib.Path(folder)
        every, limited = secrets(folder / "secrets")
        server = Server(folder / "server", "--local", "--tokens", folder / "secrets/tokens.json", "--tls-cert",
                        folder / "secrets/cert.pem", "--tls-key", folder / "secrets/key.pem", "--admin-listen", "127.0.0.1:0",
                        "--audit-log", "/dev/full")
        prometheus = None
        try:
            admin = server.started["admin"]
            prometheus = Prometheus(sys.argv[1], folder / "prometheus", urllib.parse.urlsplit(admin).netloc)
            for number in range(ROUNDS):
                asyncio.run(work(server, admin, folder / "secrets/cert.pem", every, limited, number))
                scrapes = prometheus.get("query", query="count_over_time(up[1h])")["result"]
                before = int(scrapes[0]["value"][1]) if scrapes else 0
                until = time.monotonic() + WAIT
                while not prometheus.query(f"count_over_time(up[1h]) > {before}"):
                    assert time.monotonic() < until, "Prometheus does not scrape"
                    time.sleep(0.2)
            # A server without a list of instances lacks this metric: tests/tests/local/instances.rs reads it.
            exposed = names_of(fetch(f"{admin}/metrics")) | {"runlog_forwarded_requests_total"}
            assert exposed == documented(OPERATE), f"in docs/operate.md or in /metrics alone: {exposed ^ documented(OPERATE)}"
            claim(f"{len(exposed)} metrics are exposed, and docs/operate.md has each")
            used = set()
            check_rules(prometheus, used)
            check_dashboard(prometheus, used)
            assert used == ELSEWHERE.keys(), f"not used: {ELSEWHERE.keys() - used}"
            for query, why in ELSEWHERE.items():
                print(f"not here: {query} needs {why}", flush=True)
        except AssertionError as failure:
            print(f"BROKEN: {failure}", flush=True)
            sys.exit(1)
        finally:
            if prometheus:
                prometheus.end()
            server.end()


main()
