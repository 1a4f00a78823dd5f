"""The servers that tests/servers.py starts have the properties that other tests rely on."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from servers import Cluster, Sentinel, ServerError, ServerReplyError, Servers
from waiting import wait_until


def shake_hands(servers: Servers, name: str = "127.0.0.1", with_certificate: bool = False) -> str:
    """Connects with full certificate verification, and returns the answer to PING."""
    certificates = servers[0].settings.certificates
    assert certificates is not None
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if with_certificate:
        context.load_cert_chain(*certificates.client)
    with (
        socket.create_connection(("127.0.0.1", servers[0].port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(b"PING\r\n")
        return connection.recv(100).decode()


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost"])
def test_the_valid_certificate_is_accepted_for_this_machine(name: str) -> None:
    with Servers(1, tls="valid") as servers:
        assert servers.urls[0].startswith(f"rediss://127.0.0.1:{servers[0].port}?cacert=/")
        assert shake_hands(servers, name) == "+PONG\r\n"
        assert servers[0].command("PING") == "PONG"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("expired", "certificate has expired"),
        ("other-name", "IP address mismatch"),
        ("other-ca", "unable to get local issuer certificate"),
    ],
)
def test_each_invalid_certificate_has_only_its_own_defect(kind: Any, reason: str) -> None:
    with Servers(1, tls=kind) as servers:
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            shake_hands(servers)
        assert servers[0].command("PING") == "PONG"


def test_servers_can_require_client_certificates() -> None:
    with Servers(1, tls="valid", client_certificates=True) as servers:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shake_hands(servers)
        assert shake_hands(servers, with_certificate=True) == "+PONG\r\n"
        assert "&cert=" in servers.urls[0]


def test_users_exist_after_a_restart() -> None:
    with Servers(1, users={"locker": "on >secret ~* +get"}) as servers:
        for _ in range(2):
            assert "locker" in str(servers[0].command("ACL", "LIST"))
            servers[0].restart()


def test_an_unknown_kind_of_certificate_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServerError, match=r"melted.*expired"):
        Servers(1, tls="melted")  # type: ignore[arg-type]
    assert "logs are kept" in capfd.readouterr().err


@pytest.mark.parametrize("tls", [False, True])
def test_sentinels_promote_the_replica_of_a_failed_master(tls: bool) -> None:
    with Sentinel(tls=tls, password="p@ss", sentinel_password="s&s") as service:
        scheme = "rediss" if tls else "redis"
        assert service.url.startswith(f"{scheme}-sentinel://:p%40ss@127.0.0.1:")
        assert service.url.endswith("sentinel_password=s%26s")
        assert service.master is service[0]
        service[0].command("SET", "a", "1")
        service[0].command("WAIT", 1, 0)
        service[0].kill()
        assert service.fail_over() == 1
        assert service[1].command("GET", "a") == "1"
        service[0].restart()
        service.wait_demoted(0)
        with pytest.raises(ServerReplyError, match="READONLY"):
            service[0].command("SET", "a", "2")
        service[1].freeze()
        assert service.fail_over() == 0
        service[1].thaw()
        service.wait_demoted(1)


def test_a_failover_that_a_sentinel_aborts_is_begun_again() -> None:
    with Sentinel() as service, ThreadPoolExecutor(1) as pool:
        leader = service.sentinels[0]
        leader.command("SENTINEL", "SET", "orders", "failover-timeout", 500)
        service[0].kill()
        service[1].freeze()
        replaced = pool.submit(service.fail_over)

        def is_aborted_or_refused() -> bool:
            # On a busy machine, the sentinel may consider the replica too old from the start.
            replica = str(leader.command("SENTINEL", "REPLICAS", "orders"))
            age = re.search(r"'info-refresh', '(\d+)'", replica)
            assert age
            return int(age[1]) > 5000 or "-failover-abort-" in leader.log_path.read_text()

        wait_until(is_aborted_or_refused)
        # In half a second, the sentinel may not learn that the replica is promoted.
        leader.command("SENTINEL", "SET", "orders", "failover-timeout", 10_000)
        service[1].thaw()
        assert replaced.result() == 1


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster whose first master has a replica."""
    with Cluster(replicas=1, password="p@ss", tls=request.param) as cluster:
        yield cluster


def test_a_cluster_redirects_moves_slots_and_fails_over(cluster: Cluster) -> None:
    owners = {key: cluster.owner(key) for key in ("bar", "k", "foo")}
    assert owners == {"bar": 0, "k": 1, "foo": 2}
    cluster[2].command("SET", "foo", "1")
    with pytest.raises(ServerReplyError, match=f"MOVED .*:{cluster[2].port}$"):
        cluster[0].command("GET", "foo")

    cluster.begin_move("foo", 0)
    assert cluster[2].command("GET", "foo") == "1"
    with pytest.raises(ServerReplyError, match=f"ASK .*:{cluster[0].port}$"):
        cluster[2].command("GET", "{foo}:other")
    cluster.end_move("foo", 0)
    assert cluster.owner("foo") == 0
    assert cluster[0].command("GET", "foo") == "1"
    with pytest.raises(ServerReplyError, match="MOVED"):
        cluster[2].command("GET", "foo")

    cluster[0].command("WAIT", 1, 0)
    cluster[0].freeze()
    assert cluster.fail_over(0) == 3
    assert cluster.owner("foo") == 3
    cluster[0].thaw()
    wait_until(lambda: "role:slave" in str(cluster[0].command("INFO", "replication")))
    assert cluster[3].command("GET", "foo") == "1"
