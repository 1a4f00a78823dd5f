"""The deployment examples: the files agree with one another, and the doctor accepts the nodes."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.blocks import ROOT, blocks
from docs.running import TIMEOUT, command, environment
from servers import Servers
from waiting import wait_until

COMPOSE = ROOT / "examples" / "compose" / "compose.yaml"
NODES = ROOT / "examples" / "kubernetes" / "nodes.yaml"
APP = ROOT / "examples" / "kubernetes" / "app.yaml"
DEPLOYMENT = ROOT / "docs" / "deployment.md"
KUBERNETES = ROOT / "docs" / "kubernetes.md"
FILES = [COMPOSE, NODES, APP]
GUARD = 30
"""The restart guard of the examples, in seconds."""
DNS_CACHE = 30
"""For how many seconds CoreDNS caches an address, with its usual settings."""


class Yaml:
    """A parser of the part of YAML that the examples use, since there is no YAML library here."""

    def __init__(self, text: str) -> None:
        self._lines = [
            (len(line) - len(line.lstrip()), line.strip())
            for line in text.splitlines()
            if line.strip() and not line.strip().startswith("#")
        ]
        self._anchors: dict[str, Any] = {}

    def value(self, indent: int) -> Any:
        """Reads the mapping or the list whose entries have this indentation."""
        if self._lines[0][1].startswith("- "):
            return list(self._entries(indent))
        mapping: dict[str, Any] = {}
        while self._lines and self._lines[0][0] == indent:
            key, _, rest = self._lines.pop(0)[1].partition(":")
            value = self._after_key(rest.strip(), indent)
            mapping.update(value if key == "<<" else {key: value})
        return mapping

    def _entries(self, indent: int) -> Iterator[Any]:
        while self._lines and self._lines[0][0] == indent and self._lines[0][1].startswith("- "):
            entry = self._lines[0][1][2:]
            if re.match(r"[\w.-]+:( |$)", entry):
                self._lines[0] = (indent + 2, entry)
                yield self.value(indent + 2)
            else:
                self._lines.pop(0)
                yield self._scalar(entry)

    def _after_key(self, rest: str, indent: int) -> Any:
        if rest in ("|", ">-"):
            lines = []
            while self._lines and self._lines[0][0] > indent:
                lines.append(self._lines.pop(0)[1])
            return " ".join(lines) if rest == ">-" else "\n".join(lines)
        if rest.startswith("*"):
            return self._anchors[rest[1:]]
        if rest and not rest.startswith("&"):
            return self._scalar(rest)
        value = self.value(self._lines[0][0])
        self._anchors[rest[1:]] = value
        return value

    @staticmethod
    def _scalar(text: str) -> Any:
        is_json = text[0] in '["' or re.fullmatch(r"\d+|true|false", text)
        return json.loads(text) if is_json else text


def documents(text: str) -> list[Any]:
    return [Yaml(part).value(0) for part in re.split(r"^---$", text, flags=re.MULTILINE)]


def found(file: Path, kind: str) -> Any:
    """Returns the object of this kind in a Kubernetes manifest."""
    (one,) = [each for each in documents(file.read_text()) if each["kind"] == kind]
    return one


def probes(value: Any, name: str) -> Iterator[Any]:
    """Finds all probes with this name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from probes(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from probes(inner, name)


def settings(config: str) -> dict[str, str]:
    """The lines of a configuration file of the server."""
    lines = [line for line in config.splitlines() if line and not line.startswith("#")]
    pairs = map(shlex.split, lines)
    return {pair[0]: pair[1] for pair in pairs}


def configuration_of_the_page() -> str:
    match = re.search(r"```ini\n(?P<config>.*?)```", DEPLOYMENT.read_text(), re.DOTALL)
    assert match
    return match["config"]


def compose_flags() -> list[str]:
    services = documents(COMPOSE.read_text())[0]["services"]
    (command,) = {tuple(service["command"]) for service in services.values()}
    assert command[0] == "valkey-server"
    return list(command[1:])


def flags(config: str) -> list[str]:
    kept = settings(config)
    for name in ("bind", "requirepass"):  # the servers of the tests have their own
        kept.pop(name, None)
    return [word for name, value in kept.items() for word in (f"--{name}", value)]


CONFIGURATIONS: dict[str, Callable[[], list[str]]] = {
    "compose": compose_flags,
    "kubernetes": lambda: flags(found(NODES, "Secret")["stringData"]["node.conf"]),
    "deployment.md": lambda: flags(configuration_of_the_page()),
}


def test_yaml_is_parsed() -> None:
    text = """
# A comment.
base: &base
  on: true
  words: ["a: b", "c"]
list:
  - name: x
    value: "1"
  - plain
  - --flag
merged:
  <<: *base
  more:
    text: |
      one
      two
    folded: >-
      one,
      two
---
second: 2
"""
    base = {"on": True, "words": ["a: b", "c"]}
    first = {
        "base": base,
        "list": [{"name": "x", "value": "1"}, "plain", "--flag"],
        "merged": {**base, "more": {"text": "one\ntwo", "folded": "one, two"}},
    }
    assert documents(text) == [first, {"second": 2}]


def test_compose_publishes_the_nodes_that_its_comment_names() -> None:
    text = COMPOSE.read_text()
    (services,) = [each["services"] for each in documents(text)]
    ports = [service["ports"] for service in services.values()]
    assert ports == [[f"127.0.0.1:{port}:6379"] for port in (6379, 6380, 6381)]
    (nodes,) = re.findall(r"QUORLOCK_NODES=(\S+)", text)
    assert nodes.split(",") == [f"redis://127.0.0.1:{port}" for port in (6379, 6380, 6381)]
    for service in services.values():
        assert "ping" in service["healthcheck"]["test"][1]


def test_kubernetes_clients_use_all_pods_of_the_stateful_set() -> None:
    pods, service = found(NODES, "StatefulSet"), found(NODES, "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert pods["spec"]["serviceName"] == service["metadata"]["name"]
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == pods["spec"]["selector"]["matchLabels"] == labels
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert port["port"] == container["ports"][0]["containerPort"] == 6379

    secret = found(NODES, "Secret")
    mounted = pods["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"]
    assert mounted == secret["metadata"]["name"]
    assert container["command"][1].rpartition("/")[2] in secret["stringData"]
    password = settings(secret["stringData"]["node.conf"])["requirepass"]
    name, namespace = pods["metadata"]["name"], pods["metadata"]["namespace"]
    domain = f"{service['metadata']['name']}.{namespace}.svc"
    assert pods["spec"]["replicas"] == 3
    urls = [f"redis://:{password}@{name}-{number}.{domain}:6379" for number in range(3)]
    assert found(APP, "Secret")["stringData"]["QUORLOCK_NODES"] == ", ".join(urls)


def test_kubernetes_never_takes_two_pods_at_once() -> None:
    pods, budget = found(NODES, "StatefulSet"), found(NODES, "PodDisruptionBudget")
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    affinity = pods["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"] == labels
    (ready,) = probes(pods, "readinessProbe")
    # A client starts its guard when it reconnects, for which DNS must return the new address.
    assert ready["initialDelaySeconds"] >= GUARD + DNS_CACHE + 10
    (guard,) = re.findall(r"name: QUORLOCK_RESTART_GUARD\n *value: (\w+)", APP.read_text())
    assert guard == f"{GUARD}s"


MANIFESTS = [*sorted(NODES.parent.glob("*.yaml")), ROOT / "examples" / "serve" / "sidecar.yaml"]


def pods(file: Path) -> Iterator[Any]:
    """Returns the specification of each pod in a Kubernetes manifest."""
    for each in documents(file.read_text()):
        if each["kind"] == "Pod":
            yield each["spec"]
        elif each["kind"] in ("Deployment", "StatefulSet"):
            yield each["spec"]["template"]["spec"]


def broken_rules(pod: Any) -> list[str]:
    """Returns the rules of Pod Security "restricted" that a pod breaks, for the fields that the
    examples may have."""
    broken = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    broken += [
        f"volume {volume['name']}"
        for volume in pod.get("volumes", [])
        if not volume.keys() - {"name"} <= {"configMap", "secret", "emptyDir", "projected"}
    ]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = container.get("securityContext", {})
        both = {**pod.get("securityContext", {}), **own}
        rules = {
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities") == {"drop": ["ALL"]},
            "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
            "privileged": not own.get("privileged"),
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser") != 0,
            "seccompProfile": both.get("seccompProfile") == {"type": "RuntimeDefault"},
        }
        broken += [f"{container['name']}: {name}" for name, is_kept in rules.items() if not is_kept]
    return broken


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_pods_comply_with_pod_security_restricted(file: Path) -> None:
    every = list(pods(file))
    assert every
    assert [broken_rules(pod) for pod in every] == [[]] * len(every)


def test_a_pod_that_breaks_pod_security_restricted_is_found() -> None:
    text = NODES.read_text()
    for line in (
        "allowPrivilegeEscalation: false",
        'drop: ["ALL"]',
        "runAsNonRoot: true",
        "type: RuntimeDefault",
    ):
        assert text.count(line) == 1
        without = text.replace(line, "x: 1")
        (spec,) = (
            each["spec"]["template"]["spec"]
            for each in documents(without)
            if each["kind"] == "StatefulSet"
        )
        assert len(broken_rules(spec)) == 1, line


def test_only_clients_reach_the_nodes_and_the_nodes_reach_nobody() -> None:
    namespace, policy = found(NODES, "Namespace"), found(NODES, "NetworkPolicy")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    stateful = found(NODES, "StatefulSet")
    assert policy["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert stateful["metadata"]["namespace"] == namespace["metadata"]["name"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"] == {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [{"namespaceSelector": {"matchLabels": {"quorlock": "client"}}}],
                "ports": [{"protocol": "TCP", "port": 6379}],
            }
        ],
    }
    client = found(APP, "Deployment")["metadata"]["namespace"]
    assert f"kubectl label namespace {client} quorlock=client" in KUBERNETES.read_text()


def test_no_liveness_probe_uses_quorlock() -> None:
    texts = [file.read_text() for file in FILES]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        texts += re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    for text in texts:
        for _, probe in re.findall(r"^( *)((?:liveness|startup)Probe:.*(?:\n\1 +.*)*)", text, re.M):
            assert "quorlock" not in re.findall(r"[^\s\[\]\",]+", probe)
    assert not list(probes([documents(file.read_text()) for file in FILES], "livenessProbe"))


def test_readiness_asks_for_a_majority_only() -> None:
    (probe,) = probes(found(APP, "Deployment"), "readinessProbe")
    assert probe["exec"]["command"] == ["quorlock", "doctor", "--require", "majority"]
    # Connecting to the nodes and examining them may take connect_timeout (1 s) each.
    assert probe["timeoutSeconds"] > 2


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_doctor_finds_no_error_in_the_nodes(name: str) -> None:
    args = CONFIGURATIONS[name]()
    assert "noeviction" in args
    with Servers(3, args=args) as servers:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("quorlock")), "doctor", "--json"],
            env={"QUORLOCK_NODES": ",".join(servers.urls)},
            capture_output=True,
            text=True,
            check=False,
        )
    diagnosis = json.loads(done.stdout)
    findings = [
        *diagnosis["findings"],
        *(finding for node in diagnosis["nodes"] for finding in node["findings"]),
    ]
    assert {finding["check"] for finding in findings} >= {"majority", "eviction", "persistence"}
    # Without restart_guard, nodes without persistence deserve a warning. Nothing else does.
    assert [finding for finding in findings if finding["level"] == "error"] == []
    assert {finding["check"] for finding in findings if finding["level"] != "ok"} <= {"persistence"}


WAITS = {
    "python": ("lease.fence)", "lease.fence, flush=True)\n        signal.pause()"),
    "js": (
        "lease.fence)",
        "lease.fence)\n    setTimeout(() => {}, 60_000)\n"
        "    await new Promise((_, stop) => signal.addEventListener('abort', stop))",
    ),
}
"""For each language, a change that makes the program of the page work until it is stopped."""


@pytest.mark.parametrize("language", WAITS)
def test_the_programs_of_the_page_release_their_lock_at_sigterm(
    language: str, servers: Servers, tmp_path: Path
) -> None:
    (block,) = [block for block in blocks(KUBERNETES) if block.language == language]
    servers.flush()
    program = command(block, block.code.replace(*WAITS[language]), tmp_path)
    with subprocess.Popen(
        program,
        cwd=tmp_path,
        env=environment(servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("working with fence")
        wait_until(lambda: servers[0].command("EXISTS", "orders:42") == 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
        assert process.returncode != 0
    assert [server.command("EXISTS", "orders:42") for server in servers] == [0] * 5
