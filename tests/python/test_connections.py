"""The kinds of node URLs, on real servers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from servers import Servers

import quorlock


def test_a_unix_socket(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, unix_socket=True)
    assert servers.urls[0].startswith("unix://")
    with quorlock.Client(servers.urls) as client, client.lock("r"):
        assert servers[0].command("EXISTS", "r") == 1
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            client.lock("r", wait=0).acquire()
    assert caught.value.nodes[0].address == servers.urls[0]


def test_a_database(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    with quorlock.Client([f"{servers.urls[0]}/3"]) as client, client.lock("r"):
        assert servers[0].command("EXISTS", "r") == 0
        assert "db3:keys=2" in str(servers[0].command("INFO", "keyspace"))


def test_an_acl_user_with_only_what_is_needed(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    rights = ["+evalsha", "+eval", "+set", "+get", "+del", "+pttl", "+pexpire", "+time", "+exists"]
    user = ["ACL", "SETUSER", "locker", "on", ">s3cr3t/@:", "~*", *rights]
    assert servers[0].command(*user) == "OK"
    url = servers.urls[0].replace("//", "//locker:s3cr3t%2F%40%3A@")
    with quorlock.Client([url]) as client, client.lock("r") as lease:
        lease.extend(60)
        assert client.lock("r").locked()
        assert "s3cr3t" not in repr(client)


def test_a_missing_permission_is_named(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    user = ["ACL", "SETUSER", "locker", "on", ">secret", "~*", "+evalsha", "+eval", "+get", "+time"]
    assert servers[0].command(*user) == "OK"
    with quorlock.Client([servers.urls[0].replace("//", "//locker:secret@")]) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
    [node] = caught.value.nodes
    assert node.outcome == "noperm"
    assert re.search("permission|can't run this command", node.detail)
    assert servers[0].command("EXISTS", "r") == 0
