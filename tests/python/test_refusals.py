"""Servers that answer with errors: each has a name, and is no vote."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from refusing import LOADING_ARGS, REFUSALS, deny
from servers import Servers

import quorlock

ARGS = [*LOADING_ARGS, "--repl-diskless-sync-delay", "0"]


@pytest.mark.parametrize("outcome", REFUSALS)
def test_a_refusal_has_a_name(start_servers: Callable[..., Servers], outcome: str) -> None:
    servers = start_servers(4, args=ARGS)
    REFUSALS[outcome](servers[0], servers[1])
    with quorlock.Client(servers.urls[:1], node_timeout=1) as alone:
        with pytest.raises(quorlock.QuorumError) as caught:
            alone.lock("r", wait=0).acquire()
        [node] = caught.value.nodes
        assert node.outcome == outcome
        assert node.detail
        assert alone.stats().nodes[0].outcomes == {outcome: 1}
    # Among others it is as good as down.
    others = [servers.urls[0], *servers.urls[2:]]
    with quorlock.Client(others, node_timeout=1) as client, client.lock("r") as lease:
        lease.extend()
        assert lease.valid


@pytest.mark.parametrize("rights", ["-set", "-time", "-evalsha -eval", "-get"])
def test_a_missing_permission_has_a_name(
    start_servers: Callable[..., Servers], rights: str
) -> None:
    servers = start_servers(1)
    with quorlock.Client([deny(servers[0], *rights.split())]) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
    assert caught.value.nodes[0].outcome == "noperm"
    assert servers[0].command("DBSIZE") == 0
