"""TLS connections: frozen and restarted nodes, many locks at once, forks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from nodes import keys
from servers import Servers
from waiting import wait_until

import quorlock

Start = Callable[..., Servers]


def test_a_node_frozen_before_it_is_connected_does_not_affect_the_lock(
    start_servers: Start,
) -> None:
    servers = start_servers(3, tls="valid")
    servers[0].freeze()
    with quorlock.Client(servers.urls) as client, client.lock("r") as lease:
        lease.extend()
    with quorlock.Client(servers.urls[:1], connect_timeout=0.2) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
        [node] = caught.value.nodes
        assert node.outcome in ("timeout", "unreachable")
        assert "200 ms" in node.detail


def test_many_large_requests_at_once(start_servers: Start) -> None:
    servers = start_servers(3, tls="valid")
    # The three names of a request are longer than a TLS record (16 KiB).
    names = [[f"{number}{part}" + "x" * 8_000 for part in "abc"] for number in range(100)]

    async def hold(client: quorlock.Client, several: list[str]) -> None:
        for _ in range(3):
            async with client.lock(*several) as lease:
                await lease.extend_async()

    async def main() -> None:
        async with quorlock.Client(servers.urls, ttl=60, node_timeout=30) as client:
            await asyncio.gather(*(hold(client, several) for several in names))
            leases = await asyncio.gather(
                *(client.lock(*several).acquire_async() for several in names)
            )
            await asyncio.gather(*(lease.extend_async() for lease in leases))
            assert all(lease.valid for lease in leases)
            assert all(await asyncio.gather(*(lease.release_async() for lease in leases)))

    asyncio.run(main())
    wait_until(lambda: not keys(servers))


def test_a_client_survives_a_fork(start_servers: Start) -> None:
    servers = start_servers(3, tls="valid")
    with quorlock.Client(servers.urls) as client:
        with client.lock("parent") as lease:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    with client.lock("child"):
                        pass
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                lease.extend()
            assert client.lock("parent").locked()


def test_the_doctor_reports_encryption_and_missing_verification(start_servers: Start) -> None:
    servers = start_servers(1, tls="valid")
    with quorlock.Client(servers.urls) as client:
        [node] = client.doctor().nodes
        assert node.tls
        assert all(finding.level != "error" for finding in node.findings)
    with quorlock.Client([servers.urls[0].partition("?")[0] + "?insecure=true"]) as client:
        diagnosis = client.doctor()
        assert any(
            finding.level == "warning" and "insecure" in finding.message + finding.advice
            for finding in diagnosis.nodes[0].findings
        ), str(diagnosis)


def test_files_are_read_for_each_connection(start_servers: Start, tmp_path: Path) -> None:
    """As in Kubernetes, a file is replaced by changing a symbolic link."""
    servers = start_servers(1, tls="valid", client_certificates=True)
    [server] = servers
    parameters = dict(parse_qsl(server.tls_query.removeprefix("?")))
    for name in parameters:
        link(tmp_path / name, parameters[name])
    query = urlencode({name: tmp_path / name for name in parameters})
    url = f"{server.url.partition('?')[0]}?{query}"
    with quorlock.Client([url], wait=0, ttl=600) as client:
        lease = client.lock("held").acquire()
        for name, path in parameters.items():
            broken = tmp_path / "broken"
            broken.write_text("the rotation is under way")
            link(tmp_path / name, broken)
            server.command("CLIENT", "KILL", "TYPE", "normal")
            wait_until(partial(fails_by, client, f"{name}={tmp_path / name}"))
            link(tmp_path / name, path)
            wait_until(partial(is_locked_by, client))
        lease.extend()
        assert lease.release()


def link(name: Path, target: str | Path) -> None:
    new = name.with_suffix(".new")
    new.symlink_to(target)
    new.replace(name)


def fails_by(client: quorlock.Client, cause: str) -> bool:
    try:
        client.lock("r").acquire().release()
    except quorlock.QuorumError as error:
        return cause in error.nodes[0].detail
    return False


def is_locked_by(client: quorlock.Client) -> bool:
    try:
        return client.lock("r").acquire().release()
    except quorlock.QuorumError:
        return False


def test_an_authority_can_be_replaced_while_a_client_runs(
    start_servers: Start, tmp_path: Path
) -> None:
    servers = start_servers(3, tls="valid")
    certificates = servers[0].settings.certificates
    assert certificates
    bundle = tmp_path / "ca.pem"
    link(bundle, certificates.describe()["other_ca"])
    urls = [f"{url.partition('?')[0]}?cacert={bundle}" for url in servers.urls]
    with quorlock.Client(urls, wait=0) as client:
        wait_until(partial(fails_by, client, "nobody who is trusted"))
        link(bundle, certificates.ca)
        wait_until(partial(is_locked_by, client))
