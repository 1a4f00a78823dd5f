"""Every finding of the doctor, produced on real servers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from refusing import LOADING_ARGS, REFUSALS, be_replica, deny
from servers import Server, Servers, reserve_port

import quorlock


def findings(diagnosis: quorlock.Diagnosis, node: int | None = 0) -> dict[str, quorlock.Finding]:
    """Maps checks to findings about this node; if `node` is None, about all nodes together."""
    found = diagnosis.findings if node is None else diagnosis.nodes[node].findings
    named = {finding.check: finding for finding in found}
    assert len(named) == len(found)
    for finding in found:
        assert finding.message
        assert bool(finding.advice) == (finding.level != "ok"), finding
        if finding.level != "ok":
            assert f"{finding.check}: {finding.message}" in str(diagnosis)
            assert finding.advice in str(diagnosis)
    return named


def examine(
    urls: list[str] | str, node: int | None = 0, **options: Any
) -> dict[str, quorlock.Finding]:
    urls = [urls] if isinstance(urls, str) else urls
    options.setdefault("connect_timeout", 20)
    with quorlock.Client(urls, **options) as client:
        return findings(client.doctor(), node)


def levels(found: dict[str, quorlock.Finding]) -> dict[str, str]:
    """Returns the levels of the findings that are not ok."""
    return {check: finding.level for check, finding in found.items() if finding.level != "ok"}


DURABLE = ["--appendonly", "yes", "--appendfsync", "always"]


def test_a_healthy_quorum_is_ok_and_unchanged(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(3, args=DURABLE)
    with quorlock.Client(servers.urls, connect_timeout=20) as client:
        diagnosis = client.doctor()
        assert diagnosis.level == "ok"
        for node_index in (0, 1, 2, None):
            assert levels(findings(diagnosis, node_index)) == {}
        assert {"connection", "latency", "permissions", "writes", "server", "replication"} < set(
            findings(diagnosis)
        )
        assert set(findings(diagnosis, None)) == {"nodes", "majority", "duplicates", "clocks"}
        node = diagnosis.nodes[1]
        assert node.address == servers.urls[1]
        assert node.reachable
        info = str(servers[1].command("INFO"))
        assert f"run_id:{node.run_id}\r\n" in info
        assert f"redis_version:{node.version}\r\n" in info or node.kind == "Valkey"
        assert (node.role, node.replicas, node.cluster, node.database, node.tls) == (
            "master",
            0,
            False,
            0,
            False,
        )
        assert (node.appendonly, node.appendfsync) == (True, "always")
        assert (node.maxmemory, node.maxmemory_policy) == (0, "noeviction")
        assert 0 < (node.latency_ms or 0) < 1000
        assert abs(node.clock_offset_ms or 0) < 1000
        assert set(node.permissions.values()) == {"allowed"}
        assert "3 nodes: ok" in str(diagnosis)
        decoded = json.loads(diagnosis.to_json())
        assert decoded["level"] == "ok"
        assert decoded["nodes"][1]["run_id"] == node.run_id
        assert asyncio.run(client.doctor_async()).level == "ok"
    # The doctor wrote no key, not even one that has expired.
    assert all(server.command("DBSIZE") == 0 for server in servers)
    for server in servers:
        info = str(server.command("INFO"))
        assert "expired_keys:0\r\n" in info
        assert "rdb_changes_since_last_save:0\r\n" in info
    with pytest.raises(quorlock.ClosedError):
        client.doctor()


def test_unreachable_and_silent_nodes_are_reported_in_time(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3, args=DURABLE)
    servers[0].kill()
    servers[1].freeze()
    silent = servers.proxy(2)
    with quorlock.Client([*servers.urls[:2], silent.url], connect_timeout=0.3) as client:
        diagnosis = client.doctor()
        for node, outcome in ((0, "unreachable"), (1, "timeout")):
            assert not diagnosis.nodes[node].reachable
            found = findings(diagnosis, node)["connection"]
            assert found.level == "error"
            assert found.message.startswith(outcome)
        assert findings(diagnosis, None)["majority"].level == "error"
        silent.mode = "drop_replies"
        assert levels(findings(client.doctor(), 2)) == {"connection": "error"}


def test_too_few_nodes_are_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(3, args=DURABLE)
    assert levels(examine(servers.urls[0], None)) == {"nodes": "warning"}
    assert levels(examine(servers.urls[:2], None)) == {"nodes": "warning"}
    servers[2].kill()
    assert levels(examine(servers.urls, None)) == {"majority": "warning"}
    servers[1].kill()
    assert levels(examine(servers.urls, None)) == {"majority": "error"}


def test_duplicate_nodes_are_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2, args=DURABLE)
    urls = [*servers.urls, servers.urls[1].replace("127.0.0.1", "localhost") + "/1"]
    found = examine(urls, None)
    assert found["duplicates"].level == "error"
    assert urls[1] in found["duplicates"].message
    assert urls[2] in found["duplicates"].message
    assert "2 of 3 nodes can vote" in found["majority"].message
    user = [deny(server, "-info") for server in servers]
    assert examine(user, None)["duplicates"].message == "not permitted to look"


def test_an_eviction_policy_is_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, args=DURABLE)
    servers[0].command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
    assert levels(examine(servers.urls)) == {"eviction": "warning"}
    servers[0].command("CONFIG", "SET", "maxmemory", "1gb")
    found = examine(servers.urls)
    assert levels(found) == {"eviction": "error"}
    assert "volatile-ttl" in found["eviction"].message
    servers[0].command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert levels(examine(servers.urls)) == {}


def test_memory_use_near_the_limit_is_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, args=DURABLE)
    # Examine once before measuring: the first connections and scripts increase the memory use.
    assert levels(examine(servers.urls)) == {}
    info = str(servers[0].command("INFO", "memory"))
    used = int(info.split("used_memory:")[1].split("\r")[0])
    servers[0].command("CONFIG", "SET", "maxmemory", int(used * 1.08))
    assert levels(examine(servers.urls)) == {"memory": "warning"}


def test_missing_persistence_is_reported_unless_the_restart_guard_covers_it(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)
    found = examine(servers.urls)
    assert levels(found) == {"persistence": "warning"}
    assert "appendonly is off" in found["persistence"].message
    guarded = examine(servers.urls, restart_guard=3600)
    assert "restart_guard (1 h) covers" in guarded["persistence"].message
    assert levels(guarded) == {"restart": "warning"}, "the server has just started"
    majority = examine(servers.urls, None, restart_guard=3600)["majority"]
    assert majority.message.startswith("0 of 1 nodes can vote, 1 is needed")
    assert "restart" not in found
    servers[0].command("CONFIG", "SET", "appendonly", "yes")
    found = examine(servers.urls)
    assert levels(found) == {"persistence": "warning"}
    assert "everysec" in found["persistence"].message
    servers[0].command("CONFIG", "SET", "appendfsync", "always")
    assert levels(examine(servers.urls)) == {}
    # Redis does not sync while a child process saves or rewrites.
    servers[0].command("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes")
    found = examine(servers.urls)
    assert levels(found) == {"persistence": "warning"}
    assert "no-appendfsync-on-rewrite no" in found["persistence"].advice


def test_replicas_are_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2, args=[*DURABLE, "--repl-diskless-sync-delay", "0"])
    be_replica(servers[1], servers[0])
    assert levels(examine(servers.urls, 0)) == {"replication": "warning"}
    found = examine(servers.urls, 1)
    assert levels(found) == {"replication": "error", "writes": "error"}
    assert "slave" in found["replication"].message


def test_a_cluster_server_is_reported(start_servers: Callable[..., Servers]) -> None:
    bus, reservation = reserve_port()
    reservation.close()
    servers = start_servers(
        1, args=[*DURABLE, "--cluster-enabled", "yes", "--cluster-port", str(bus)]
    )
    assert levels(examine(servers.urls))["cluster"] == "error"


@pytest.mark.parametrize("outcome", REFUSALS)
def test_refused_writes_are_reported(start_servers: Callable[..., Servers], outcome: str) -> None:
    servers = start_servers(2, args=[*LOADING_ARGS, "--repl-diskless-sync-delay", "0"])
    REFUSALS[outcome](servers[0], servers[1])
    with quorlock.Client(servers.urls[:1], connect_timeout=20) as client:
        diagnosis = client.doctor()
    found = findings(diagnosis)["writes"]
    assert found.level == "error"
    assert outcome.upper() in found.message
    assert findings(diagnosis, None)["majority"].level == "error"


def test_missing_permissions_are_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, args=DURABLE)
    for needed in ("set", "get", "del", "pexpire", "pttl", "time", "exists", "eval", "evalsha"):
        with quorlock.Client([deny(servers[0], f"-{needed}")], connect_timeout=20) as client:
            diagnosis = client.doctor()
        found = findings(diagnosis)["permissions"]
        assert found.level == "error"
        assert needed.upper() in found.message
        node = diagnosis.nodes[0]
        denied = [name for name, given in node.permissions.items() if given == "denied"]
        assert denied == [needed.upper()]
        assert findings(diagnosis, None)["majority"].level == "error"
        if needed == "time":
            assert findings(diagnosis)["clock"].message == "not permitted to look"
            assert findings(diagnosis)["latency"].message == "not permitted to look"
    # quorlock still works if one of these commands is forbidden, so the doctor only warns.
    for useful, name in (
        ("-script", "SCRIPT LOAD"),
        ("-info", "INFO"),
        ("-subscribe", "SUBSCRIBE"),
        ("-publish", "PUBLISH"),
        ("-zadd", "ZADD"),
        ("-pexpireat", "PEXPIREAT"),
        ("-zscore", "ZSCORE"),
        ("-zrevrank", "ZREVRANK"),
        ("-zcount", "ZCOUNT"),
        ("-zrangebyscore", "ZRANGEBYSCORE"),
        ("-zremrangebyscore", "ZREMRANGEBYSCORE"),
    ):
        found = examine(deny(servers[0], useful))["permissions"]
        assert found.level == "warning"
        assert name in found.message
    # This user may only use keys that begin with `orders:`, so the client needs that key prefix.
    rules = ("on", ">s", "~orders:*", "~{orders:*", "+@all")
    servers[0].command("ACL", "SETUSER", "keys", *rules)
    url = servers.urls[0].replace("//", "//keys:s@")
    assert examine(url)["permissions"].level == "error"
    with quorlock.Client([url], key_prefix="orders:", connect_timeout=20) as client:
        found = findings(client.doctor())["permissions"]
        assert found.level == "warning"
        assert "PUBLISH, SUBSCRIBE" in found.message
        servers[0].command("ACL", "SETUSER", "keys", "&orders:quorlock:*")
        assert levels(findings(client.doctor())) == {}


def test_checks_without_permission_are_warnings(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1, args=DURABLE)
    found = examine(deny(servers[0], "-@dangerous"), restart_guard=60)
    unseen = {
        check for check, finding in found.items() if "not permitted to look" in finding.message
    }
    expected = {"server", "replication", "cluster", "eviction", "memory", "restart"}
    assert unseen == expected
    assert {found[check].level for check in unseen} == {"warning"}
    found = examine(deny(servers[0], "-config"))
    assert levels(found) == {"persistence": "warning"}
    assert found["persistence"].message == "not permitted to look"
    assert "set restart_guard" in found["persistence"].advice
    # Nobody may give this permission in most managed services.
    assert levels(examine(deny(servers[0], "-config"), restart_guard=60)).keys() <= {"restart"}


def test_disabled_commands_are_missing_permissions(start_servers: Callable[..., Servers]) -> None:
    disabled = [word for name in ("SCRIPT", "SUBSCRIBE") for word in ("--rename-command", name, "")]
    servers = start_servers(1, args=[*DURABLE, *disabled])
    found = examine(servers.urls)
    assert levels(found) == {"permissions": "warning"}
    assert "SCRIPT LOAD: the first use of each script" in found["permissions"].message
    assert "SUBSCRIBE: waiters are not notified" in found["permissions"].message
    with quorlock.Client(servers.urls) as client, client.lock("r", wait=20):
        pass


def test_high_latency_is_reported(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, args=DURABLE)
    proxy = servers.proxy(0)
    proxy.delay = 0.15
    with quorlock.Client([proxy.url], node_timeout=0.2, connect_timeout=20) as client:
        assert levels(findings(client.doctor())) == {"latency": "warning"}


def test_a_node_that_answers_slowly_can_vote(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, args=DURABLE)
    proxy = servers.proxy(0)
    # A few round trips fit into `connect_timeout`, but not as many as the doctor usually measures.
    proxy.delay = 0.5
    with quorlock.Client([proxy.url], ttl=40, node_timeout=2, connect_timeout=4) as client:
        diagnosis = client.doctor()
        assert levels(findings(diagnosis)) == {}
        assert (diagnosis.nodes[0].latency_ms or 0) >= 500


def test_a_database_number_and_missing_encryption_are_reported(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1, args=DURABLE)
    found = examine(f"{servers.urls[0]}/3")
    assert "number 3" in found["database"].message
    assert found["encryption"].level == "ok"
    # A documentation address (RFC 5737), where no host answers.
    found = examine("redis://:secret@192.0.2.1", connect_timeout=0.1)
    assert levels(found) == {"connection": "error", "encryption": "warning"}


def test_an_in_memory_node_is_reported() -> None:
    assert levels(examine("memory://doctor")) == {"server": "warning"}


@pytest.mark.parametrize("skew", [-30, 3600])
def test_a_skewed_clock_is_reported_and_the_lock_works(
    start_servers: Callable[..., Servers], skewed: str, skew: int
) -> None:
    right = start_servers(1, args=DURABLE)
    wrong = start_servers(1, args=DURABLE, environment={"LD_PRELOAD": skewed, "SKEW": str(skew)})
    urls = [*right.urls, *wrong.urls]
    with quorlock.Client(urls, connect_timeout=20) as client:
        diagnosis = client.doctor()
        assert levels(findings(diagnosis, 0)) == {}
        assert levels(findings(diagnosis, 1)) == {"clock": "warning"}
        assert abs((diagnosis.nodes[1].clock_offset_ms or 0) - skew * 1000) < 1000
        apart = findings(diagnosis, None)["clocks"]
        assert apart.level == "error"
        assert "second round trip" in apart.message
        assert abs(abs(skew) * 1000 - float(apart.message.split()[4])) < 1000
        # The lock still works.
        with client.lock("r") as lease:
            fence = lease.fence
        with client.lock("r") as lease:
            assert lease.fence > fence


@contextmanager
def impersonated(server: Server, real: bytes, fake: bytes) -> Iterator[str]:
    """Relays to the server and replaces `real` in its replies with `fake`, of the same length."""
    assert len(real) == len(fake)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def relay(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError), source, target:
                while data := source.recv(1 << 16):
                    target.sendall(data.replace(real, fake))

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                upstream = socket.create_connection(("127.0.0.1", server.port))
                for pair in ((client, upstream), (upstream, client)):
                    threading.Thread(target=relay, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("reported", "level", "kind", "version"),
    [
        (b"redis_version:5", "warning", "Redis", "5"),
        (b"redis_version:6.1", "warning", "Redis", "6.1"),
        (b"garnet_version:1.0.58", "warning", "Garnet", "1.0.58"),
        (b"valkey_version:8.0.1", "ok", "Valkey", "8.0.1"),
    ],
)
def test_the_kind_and_version_of_the_server_are_reported(
    start_servers: Callable[..., Servers], reported: bytes, level: str, kind: str, version: str
) -> None:
    servers = start_servers(1, args=DURABLE)
    line = next(
        line
        for line in str(servers[0].command("INFO", "server")).split("\r\n")
        if line.startswith("redis_version" if kind == "Redis" else "redis_git_sha1")
    )
    real = line.encode()
    if kind == "Redis":
        fake = reported + b"." + b"0" * (len(real) - len(reported) - 1)
    else:
        fake = reported.ljust(len(real), b"0")
    with (
        impersonated(servers[0], real, fake) as url,
        quorlock.Client([url], connect_timeout=20) as client,
    ):
        diagnosis = client.doctor()
    assert findings(diagnosis)["server"].level == level
    assert diagnosis.nodes[0].kind == kind
    assert str(diagnosis.nodes[0].version).startswith(version)
