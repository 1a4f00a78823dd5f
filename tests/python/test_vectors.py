"""Runs the test vectors that all languages share; see tests/vectors/README.md."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from rows import expect, load, python_options, python_value
from servers import Servers
from waiting import wait_until

import quorlock


@pytest.mark.parametrize("row", load("errors.json"), ids=lambda row: row["code"])
def test_error_classes_have_the_codes_in_the_table(row: dict[str, str]) -> None:
    kind = getattr(quorlock, row["class"])
    assert issubclass(kind, quorlock.QuorlockError)
    assert kind.code == row["code"]


@pytest.mark.filterwarnings("ignore:ttl=86400 is 24 h")
@pytest.mark.parametrize(
    "case", load("options.json"), ids=lambda case: f"{case['in']}-{case['option']}-{case['value']}"
)
def test_options_are_accepted_or_refused_as_in_the_table(case: dict[str, Any]) -> None:
    option = {case["option"]: python_value(case["option"], case["value"])}

    def in_client() -> None:
        quorlock.Client(["memory://options"], **option)

    def in_lock() -> None:
        quorlock.Client(["memory://options"]).lock("r", **option)

    def in_extend() -> None:
        with quorlock.Client(["memory://options"]).lock(str(case)) as lease:
            lease.extend(**option)

    def in_release() -> None:
        with quorlock.Client(["memory://options"]).lock(str(case)) as lease:
            lease.release(**option)

    places = {"client": in_client, "lock": in_lock, "extend": in_extend, "release": in_release}
    expect(case, places[case["in"]])


@pytest.mark.parametrize("case", load("nodes.json"), ids=lambda case: str(case["nodes"]))
def test_node_lists_are_accepted_or_refused_as_in_the_table(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUORLOCK_NODES", raising=False)
    client = expect(case, lambda: quorlock.Client(case["nodes"]))
    if client is not None:
        for secret in case.get("never", []):
            assert secret not in repr(client)


@pytest.mark.parametrize(
    "case",
    load("resources.json"),
    ids=lambda case: (
        str(case.get("given", case.get("count", case.get("length"))))
        .encode("unicode_escape")
        .decode()
    ),
)
def test_resources_are_accepted_or_refused_as_in_the_table(case: dict[str, Any]) -> None:
    resources = case.get("given") or [f"r{number}" for number in range(case.get("count", 0))]
    if "length" in case:
        resources = ["x" * case["length"]]
    with quorlock.Client(["memory://resources"]) as client:
        lock = expect(case, lambda: client.lock(*resources))
        if lock is None:
            return
        with lock as lease:
            assert lease.resources == tuple(resources)
            assert list(lease.fences) == resources
            assert lock.locked()
        assert not lock.locked()


@pytest.mark.parametrize(
    "case", load("environment.json"), ids=lambda case: f"{case['set']}-{case.get('options')}"
)
def test_settings_of_a_fleet_come_from_the_environment(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUORLOCK_NODES", raising=False)
    for variable, value in case["set"].items():
        monkeypatch.setenv(variable, value)
    options = python_options(case.get("options", {}))
    client = expect(case, lambda: quorlock.Client(case["nodes"], **options))
    if client is None:
        return
    with client:
        settings = {setting.name: setting for setting in client.doctor().settings}
    assert list(settings) == ["nodes", "restart_guard", "key_prefix", "drift_factor"]
    for name, (value, source) in case["settings"].items():
        setting = settings[name]
        assert (setting.value, setting.source) == (value, source.replace(f"{{{name}}}", name))


def listed(resource: Any) -> list[str]:
    """Returns the resources of a step as a list. The step has one resource or a list."""
    return resource if isinstance(resource, list) else [resource]


def check_modes(step: dict[str, Any], lease: quorlock.Lease) -> None:
    """Checks the modes of the lease, if the step has any."""
    if modes := step.get("modes"):
        kinds = {*modes.values()}
        assert lease.modes == modes
        assert lease.mode == (kinds.pop() if len(kinds) == 1 else None)


class Scenario:
    """Runs the steps of one scenario."""

    def __init__(self, servers: Servers | None, urls: list[str], options: dict[str, Any]) -> None:
        self._servers = servers
        self.urls = urls
        self.options = options
        self.clients: list[quorlock.Client] = []
        self.client = self.open({})
        self.leases: dict[str, quorlock.Lease] = {}
        self.texts: dict[str, str] = {}

    @property
    def servers(self) -> Servers:
        assert self._servers is not None, "the step is for servers"
        return self._servers

    def open(self, by: dict[str, Any]) -> quorlock.Client:
        options = {**self.options, **by}
        urls = [self.urls[index] for index in options.pop("nodes", range(len(self.urls)))]
        self.clients.append(quorlock.Client(urls, **python_options(options)))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def run(self, step: dict[str, Any]) -> None:
        match step:
            case {"acquire": name, "resource": resource}:
                options = python_options(step.get("options", {}))
                lock = self.client.lock
                lease = expect(step, lambda: lock(*listed(resource), **options).acquire())
                if lease is not None:
                    assert lease.resources == tuple(listed(resource))
                    assert lease.holder == step.get("holder", lease.holder)
                    check_modes(step, lease)
                    self.leases[name] = lease
            case {"try_acquire": name, "resource": resource}:
                tried = expect(step, lambda: self.client.lock(*listed(resource)).try_acquire())
                assert (tried is not None) is step.get("returns", False)
                if tried is not None:
                    self.leases[name] = tried
            case {"permits": name, "resource": resource, "limit": limit}:
                count = step.get("count", 1)
                options = {"limit": limit, "permits": count, "wait": 0}
                lease = expect(step, lambda: self.client.semaphore(resource, **options).acquire())
                if lease is not None:
                    assert len(lease.slots) == count
                    self.leases[name] = lease
            case {"slots": names, "are": slots}:
                assert sorted(sum((self.leases[name].slots for name in names), ())) == slots
            case {"free": resource, "limit": limit, "is": free}:
                assert self.client.semaphore(resource, limit=limit).status().free == free
            case {"release": name, "keep": keep}:
                assert self.leases[name].release(keep=keep / 1000) is step["returns"]
            case {"release": name}:
                assert self.leases[name].release() is step["returns"]
            case {"extend": name}:
                ttl = step.get("ttl")
                expect(step, lambda: self.leases[name].extend(ttl and ttl / 1000))
            case {"downgrade": name}:
                expect(step, self.leases[name].downgrade)
                check_modes(step, self.leases[name])
            case {"upgrade": name, "of": reader}:
                upgraded = expect(step, self.leases[reader].try_upgrade)
                assert (upgraded is not None) is step.get("returns", False)
                if upgraded is not None:
                    check_modes(step, upgraded)
                    self.leases[name] = upgraded
            case {"detach": name}:
                within = step.get("within")
                seconds = python_value("within", within)
                text = expect(step, lambda: self.leases[name].detach(seconds))
                if text is not None:
                    self.texts[name] = text
            case {"adopt": name, "text": text}:
                whole = self.texts[text]
                old, new = step.get("replace", ("", ""))
                given = whole.replace(old, new, 1)
                client = self.open(step["by"]) if "by" in step else self.client
                options = python_options(step.get("options", {}))
                row = {**step, "never": [whole[30:60]]}
                lease = expect(row, lambda: client.adopt(given, **options))
                if lease is not None:
                    assert lease.resources == self.leases[text].resources
                    assert lease.holder == step.get("holder", lease.holder)
                    self.leases[name] = lease
            case {"stores": server, "lease": name, "resource": resource}:
                token = self.leases[name].token
                wait_until(lambda: self.servers[server].command("GET", resource) == token)
            case {"locked": resource}:
                locked = expect(step, lambda: self.client.lock(*listed(resource)).locked())
                assert locked is step.get("returns")
            case {"status": resource}:
                status = self.client.status(resource)
                assert (status.state, status.holder) == (step["is"], step["holder"])
            case {"force_release": resource}:
                nodes = self.client.force_release(resource)
                assert [node.outcome for node in nodes] == step["outcomes"]
            case {"valid": name}:
                assert self.leases[name].valid is step["is"]
                assert (self.leases[name].remaining > 0) is step["is"]
            case {"check": name}:
                expect(step, self.leases[name].check)
            case {"lost": name}:
                assert self.leases[name].wait_lost(60)
                expect({**step, "error": "LEASE_LOST"}, self.leases[name].check)
            case {"not_lost": name}:
                assert not self.leases[name].wait_lost()
            case {"hold": name, "for": milliseconds}:
                until = time.monotonic() + milliseconds / 1000
                while time.monotonic() < until:
                    assert self.leases[name].valid
                    time.sleep(0.005)
            case {"heartbeat": name}:
                until = time.monotonic() + step.get("for", 0) / 1000
                while time.monotonic() < until:
                    self.leases[name].heartbeat()
                    time.sleep(0.005)
                expect(step, self.leases[name].heartbeat)
            case {"increasing": names}:
                last: dict[str, int] = {}
                for name in names:
                    for resource, fence in self.leases[name].fences.items():
                        assert fence > last.get(resource, 0)
                        last[resource] = fence
            case {"fence": name}:
                fence = expect(step, lambda: self.leases[name].fence)
                assert fence in (None, *self.leases[name].fences.values())
            case {"command": [server, *command]}:
                assert self.servers[server].command(*command) == step["reply"]
            case {"eventually": [server, *command]}:
                wait_until(lambda: self.servers[server].command(*command) == step["reply"])
            case {"close": True}:
                self.client.close()
            case {"freeze": server} | {"thaw": server} | {"kill": server} | {"restart": server}:
                getattr(self.servers[server], next(iter(step)))()
            case _:
                pytest.fail(f"unknown step {step}")


@pytest.mark.parametrize("case", load("scenarios.json"), ids=lambda case: case["name"])
def test_scenarios_have_the_results_in_the_table(
    case: dict[str, Any], start_servers: Callable[..., Servers]
) -> None:
    servers = start_servers(case["servers"], password=case.get("password"))
    urls = [f"redis://127.0.0.1:{server.port}" for server in servers]
    if password := case.get("url_password"):
        urls = [url.replace("//", f"//:{password}@") for url in urls]
    with contextlib.closing(Scenario(servers, urls, case.get("options", {}))) as scenario:
        for step in case["steps"]:
            scenario.run(step)


@pytest.mark.parametrize(
    "case",
    [case for case in load("scenarios.json") if case.get("memory")],
    ids=lambda case: case["name"],
)
def test_scenarios_have_the_same_results_on_nodes_in_memory(case: dict[str, Any]) -> None:
    urls = [f"memory://{case['name']} {node}".replace(" ", "-") for node in range(case["servers"])]
    with contextlib.closing(Scenario(None, urls, case.get("options", {}))) as scenario:
        for step in case["steps"]:
            if not step.keys() & {"command", "eventually", "stores"}:
                scenario.run(step)
