#!/usr/bin/env python3
"""Checks deploy/helm/runlog: `helm lint`, `helm template`, the schemas of Kubernetes, and a server with the rendered flags.

    tests/python/chart.py FOLDER     # of the Prometheus operator's definitions

helm and kubectl-validate must be on PATH, and bin/runlog must be there; scripts/chart.sh does this. Exits 0 if all claims hold.
"""

import asyncio
import pathlib
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

import yaml
from journal import RUNLOG, TOP, WAIT, Connection, Server, create_token, run

CHART = TOP / "deploy/helm/runlog"
KUBERNETES = "1.30"
NAMESPACE = "agents"
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
SECURED = CHART / "ci/secured-values.yaml"

# Values that the chart refuses, beside the secured ones, and a part of the message.
REFUSED = [
    (["replica=3"], "additional properties 'replica' not allowed"),
    (["kafka.brokers="], "kafka.brokers is required"),
    (["kafka.brokers=a"], "does not match pattern"),
    (["tls.secretName="], "tls.secretName is required"),
    (["tokens.secretName="], "tokens.secretName is required"),
    (["tls.secretName=", "insecure.noTls=true", "tls.clientCaSecretName=ca"], "needs tls.secretName"),
    (["extraArgs={--new-journal}"], "by hand"),
    (["extraArgs={--take-home=kafka:a:b}"], "by hand"),
    (["replicas=0"], "minimum"),
    (["service.sessionAffinity=Client"], "must be one of"),
]
# Misspelt members of manifests, which show that they are validated.
MISSPELT = ["readinessProbe", "persistentVolumeClaimRetentionPolicy", "unhealthyPodEvictionPolicy", "policyTypes", "scrapeTimeout",
            "publishNotReadyAddresses", "automountServiceAccountToken"]


def claim(text):
    print(f"holds: {text}", flush=True)


def command(*words):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout, ran.stderr


def helm(verb, values, *settings):
    flags = [word for setting in settings for word in ("--set", setting)]
    name = ["lint", "--strict", CHART] if verb == "lint" else ["template", "runlog", CHART]
    return command("helm", *name, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--values", values, *flags)


def rendered(values):
    code, out, errors = helm("template", values)
    assert code == 0, errors
    return out


def validate(text, definitions, folder):
    (folder / "manifests.yaml").write_text(text)
    return command("kubectl-validate", "--version", KUBERNETES, "--local-crds", definitions, folder / "manifests.yaml")


def valid(definitions, folder):
    for values in EXAMPLES:
        code, out, errors = helm("lint", values)
        assert code == 0, out + errors
        code, out, errors = validate(rendered(values), definitions, folder)
        assert code == 0, f"{values.name}: {out}{errors}"
    claim(f"{len(EXAMPLES)} examples of values are linted, rendered, and valid for Kubernetes {KUBERNETES}")
    everything = rendered(CHART / "ci/everything-values.yaml")
    for member in MISSPELT:
        assert f"{member}:" in everything, member
        code, out, errors = validate(everything.replace(f"{member}:", f"{member}x:"), definitions, folder)
        assert code != 0 and f"{member}x" in errors + out, f"{member}x is not found"
    claim(f"each of {len(MISSPELT)} misspelt members is found")
    for settings, message in REFUSED:
        code, out, errors = helm("template", SECURED, *settings)
        assert code != 0 and message in errors, f"{settings}: {code} {errors}"
    claim(f"{len(REFUSED)} wrong or dangerous values are refused")


def parts(values):
    """The manifests by kind, and the services by name."""
    manifests = [manifest for manifest in yaml.safe_load_all(rendered(values)) if manifest]
    services = {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == "Service"}
    return {manifest["kind"]: manifest for manifest in manifests}, services


def consistent():
    for values in EXAMPLES:
        kinds, services = parts(values)
        assert "Secret" not in kinds
        stateful = kinds["StatefulSet"]["spec"]
        pod, labels = stateful["template"]["spec"], stateful["template"]["metadata"]["labels"]
        container = pod["containers"][0]
        ports = {port["name"] for port in container["ports"]}
        selectors = [stateful["selector"]["matchLabels"], *(service["spec"]["selector"] for service in services.values())]
        selectors += [kinds[kind]["spec"]["selector"]["matchLabels"] for kind in ("PodDisruptionBudget",) if kind in kinds]
        selectors += [kinds[kind]["spec"]["podSelector"]["matchLabels"] for kind in ("NetworkPolicy",) if kind in kinds]
        assert all(selector.items() <= labels.items() for selector in selectors), (selectors, labels)
        assert {port["targetPort"] for service in services.values() for port in service["spec"]["ports"]} <= ports
        assert services[stateful["serviceName"]]["spec"]["clusterIP"] == "None"
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]} | {"data"}
        assert ("PodDisruptionBudget" in kinds) == (stateful["replicas"] > 1)
        # As deploy/compose.yaml, and by an ordinary user.
        hardened = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == hardened, container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000
        assert pod["automountServiceAccountToken"] is False
        for rule in kinds.get("NetworkPolicy", {"spec": {"ingress": []}})["spec"]["ingress"]:
            assert {port["port"] for port in rule["ports"]} <= ports, f"the pod lacks a port of {rule}"
            assert "from" in rule or rule["ports"][0]["port"] != "admin", "everyone reaches the port of metrics"
        if "ServiceMonitor" in kinds:
            wanted = kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
            found = [service for service in services.values() if wanted <= service["metadata"]["labels"].items()]
            assert [service["metadata"]["name"] for service in found] == [stateful["serviceName"]], "each replica is scraped once"
            endpoint = kinds["ServiceMonitor"]["spec"]["endpoints"][0]
            assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
        if "PrometheusRule" in kinds:
            assert kinds["PrometheusRule"]["spec"] == yaml.safe_load((TOP / "deploy/prometheus/rules.yaml").read_text())
        if "ConfigMap" in kinds:
            assert kinds["ConfigMap"]["data"]["runlog.json"] == (TOP / "deploy/grafana/runlog.json").read_text()
    claim("selectors, ports, volumes, rules and the dashboard fit together; pods are hardened, and Secrets are named only")


async def answers(server, trust, token, hosts):
    for host, wanted in hosts.items():
        # The certificate has another name.
        connection = await Connection.open(server.port, trust, token, host)
        status, body = await connection.ask("GET", "/v1/runs")
        connection.close()
        assert status == wanted, (host, status, body)


def starts(folder):
    """Runs the container's command with a local log in place of Kafka, and files in place of the volumes."""
    kinds, services = parts(SECURED)
    stateful = kinds["StatefulSet"]
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    pod = f"{stateful['metadata']['name']}-0"
    secrets = folder / "secrets"
    (secrets / "tls").mkdir(parents=True)
    (secrets / "tokens").mkdir()
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
        "/CN=runlog", "-addext", "subjectAltName=DNS:runlog", "-keyout", secrets / "tls/tls.key", "-out", secrets / "tls/tls.crt")
    (secrets / "tls/tls.key").chmod(0o600)
    token = create_token(secrets / "tokens", "operator", "append,read_meta", "*")

    flags = container["args"]
    assert flags[0] == "serve"
    help_text = run(RUNLOG, "serve", "--help")
    for flag in (word for word in flags if word.startswith("--")):
        assert f"{flag} " in help_text or f"{flag}\n" in help_text, f"serve has no {flag}"
    here = []
    pairs = iter(flags[1:])
    for flag in pairs:
        value = next(pairs)
        if flag == "--brokers":
            here.append("--local")
        elif flag not in ("--topic", "--kafka-properties", "--data", "--listen"):
            value = value.replace("/secrets", str(secrets)).replace("0.0.0.0:7071", "127.0.0.1:0").replace("$(POD_NAME)", pod)
            here += [flag, value]
    server = Server(folder / "server", *here)
    try:
        admin = server.started["admin"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[name]["httpGet"]
            assert probe["port"] == "admin"
            with urllib.request.urlopen(urllib.parse.urljoin(admin, probe["path"]), timeout=WAIT) as answer:
                assert answer.status == 200
        trust = ssl.create_default_context(cafile=secrets / "tls/tls.crt")
        trust.check_hostname = False
        client, headless = (name for name in sorted(services, key=len))
        hosts = [client, f"{client}.{NAMESPACE}", f"{client}.{NAMESPACE}.svc", f"{client}.{NAMESPACE}.svc.cluster.local",
                 f"{pod}.{headless}", f"{pod}.{headless}.{NAMESPACE}.svc.cluster.local"]
        asyncio.run(answers(server, trust, token, dict.fromkeys(hosts, 200) | {"elsewhere.example": 421}))
        asyncio.run(answers(server, trust, None, {client: 401}))
    finally:
        assert server.end() == 0
    claim("a server starts with the rendered flags, answers the probes, and clients that name it as the Services do")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    definitions = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="runlog-chart-") as folder:
        folder = pathlib.Path(folder)
        try:
            valid(definitions, folder)
            consistent()
            starts(folder)
        except AssertionError as failure:
            print(f"BROKEN: {failure}", flush=True)
            sys.exit(1)


main()
