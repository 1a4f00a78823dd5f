"""Servers that answer with errors: each error has its own outcome and does not count as a vote."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from refusing import LOADING_ARGS, REFUSALS, deny
from servers import Servers

import quorlock

ARGS = [*LOADING_ARGS, "--repl-diskless-sync-delay", "0"]


@pytest.mark.parametrize("outcome", REFUSALS)
def test_a_refusal_has_its_own_outcome_and_is_no_vote(
    start_servers: Callable[..., Servers], outcome: str
) -> None:
    servers = start_servers(4, args=ARGS)
    REFUSALS[outcome](servers[0], servers[1])
    with quorlock.Client(servers.urls[:1], node_timeout=1) as alone:
        with pytest.raises(quorlock.QuorumError) as caught:
            alone.lock("r", wait=0).acquire()
        [node] = caught.value.nodes
        assert node.outcome == outcome
        assert node.detail
        assert alone.stats().nodes[0].outcomes == {outcome: 1}
    # With a majority of other nodes, the lock works.
    others = [servers.urls[0], *servers.urls[2:]]
    with quorlock.Client(others, node_timeout=1) as client, client.lock("r") as lease:
        lease.extend()
        assert lease.valid


@pytest.mark.parametrize("rights", ["-set", "-time", "-evalsha -eval", "-get"])
def test_a_missing_permission_has_the_outcome_noperm(
    start_servers: Callable[..., Servers], rights: str
) -> None:
    servers = start_servers(1)
    with quorlock.Client([deny(servers[0], *rights.split())]) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
    assert caught.value.nodes[0].outcome == "noperm"
    assert servers[0].command("DBSIZE") == 0
