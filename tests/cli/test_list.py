"""`quorlock list` and `quorlock watch`."""

from __future__ import annotations

import json
import secrets
import signal

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, line, parse_json
from fleet.cluster import Cluster
from nodes import queued, steal
from servers import Servers
from waiting import wait_until

import quorlock as library

SOON = ["--connect-timeout", "50ms"]


def store(servers: Servers, key: str, value: str) -> None:
    for server in servers:
        server.command("SET", key, value, "PX", 600_000)


def listed(quorlock: CommandLine, *arguments: str) -> list[str]:
    """Returns the names that `quorlock list` shows."""
    done = quorlock.run("list", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [status["resource"] for status in parse_json(done.stdout)]


def test_list_shows_held_resources_and_no_other_keys(
    quorlock: CommandLine, servers: Servers
) -> None:
    done = quorlock.run("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "quorlock: nothing is held\n"
    assert listed(quorlock) == []
    done = quorlock.run("list", "orders:")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "quorlock: nothing whose name begins with orders: is held\n"

    store(servers, "orders:1", secrets.token_hex(20))
    named = f"{secrets.token_hex(20)};web-7:4121"
    store(servers, "orders:2", named)
    for key, value in [
        ("text", "x"),
        ("long", secrets.token_hex(21)),
        ("upper", secrets.token_hex(20).upper()),
        ("x" * 8193, secrets.token_hex(20)),
    ]:
        store(servers, key, value)
    for server in servers:
        server.command("HSET", "hash", "field", secrets.token_hex(20))
    # An attempt that failed: a minority has the key.
    servers[0].command("SET", "minority", secrets.token_hex(20))
    with library.Client(servers.urls) as client, client.lock("a[b]*c"):
        assert listed(quorlock) == ["a[b]*c", "orders:1", "orders:2"]
        assert listed(quorlock, "orders:") == ["orders:1", "orders:2"]
        assert listed(quorlock, "a[b]*") == ["a[b]*c"]
        assert listed(quorlock, "*") == []
        done = quorlock.run("list", "a")
        titles, row = done.stdout.splitlines()
        assert titles.startswith("RESOURCE  STATE  HOLDER")
        assert row.startswith("a[b]*c    held   ")
        done = quorlock.run("list", "orders:2")
        cells = done.stdout.splitlines()[1].split()
        assert cells[:4] == ["orders:2", "held", "web-7:4121", "-"]
        done = quorlock.run("list", "--limit", "1")
        assert len(done.stdout.splitlines()) == 2
        assert "there may be more" in done.stderr


def test_list_knows_the_key_prefix(quorlock: CommandLine, servers: Servers) -> None:
    store(servers, "app:r", secrets.token_hex(20))
    store(servers, "other:r", secrets.token_hex(20))
    assert listed(quorlock, "--key-prefix", "app:") == ["r"]
    assert listed(quorlock, "--key-prefix", "app:", "x") == []


def test_list_reads_many_keys_page_by_page(quorlock: CommandLine, servers: Servers) -> None:
    script = "for i = 1, 3000 do redis.call('SET', 'key:' .. i, 'text') end"
    locks = "for i = 1, 20 do redis.call('SET', 'lock:' .. i, ARGV[1]) end"
    for server in servers:
        server.command("EVAL", script, 0)
        server.command("EVAL", locks, 0, secrets.token_hex(20))
    expected = sorted(f"lock:{number}" for number in range(1, 21))
    # Each node has a token of its own, so the resources are contested.
    assert listed(quorlock) == expected


def test_keys_that_are_no_locks_do_not_count_towards_the_limit(
    quorlock: CommandLine, servers: Servers
) -> None:
    # No resource has so long a name. A page has 500 keys.
    script = "for i = 1, 600 do redis.call('SET', string.rep('x', 8192) .. i, ARGV[1]) end"
    for server in servers:
        server.command("EVAL", script, 0, secrets.token_hex(20))
    store(servers, "r", secrets.token_hex(20))
    assert listed(quorlock, "--limit", "1") == ["r"]


def test_list_needs_a_majority(quorlock: CommandLine, servers: Servers) -> None:
    store(servers, "r", secrets.token_hex(20))
    servers[0].kill()
    assert listed(quorlock) == ["r"]
    servers[1].kill()
    done = quorlock.run("list", *SOON)
    assert (done.returncode, done.stdout) == (69, "")
    assert "1 of 3 did, 2 are needed" in done.stderr


@pytest.mark.parametrize("command", ["scan", "getrange"])
def test_list_names_a_missing_permission(
    quorlock: CommandLine, servers: Servers, command: str
) -> None:
    store(servers, "r", secrets.token_hex(20))
    for server in servers:
        server.command("ACL", "SETUSER", "default", f"-{command}")
    done = quorlock.run("list")
    assert (done.returncode, done.stdout) == (69, "")
    assert "the user needs the permissions scan and getrange" in done.stderr
    # Locking does not need it.
    assert quorlock.run("run", "other", "--", "true").returncode == 0


def test_list_asks_all_masters_of_a_cluster(quorlock: CommandLine) -> None:
    with Cluster() as cluster:
        names = [f"r{number}" for number in range(30)]
        with library.Client([cluster.url]) as client:
            leases = [client.lock(name).acquire() for name in names]
            assert listed(quorlock, "--node", cluster.url) == sorted(names)
            for lease in leases:
                lease.release()


def test_list_on_memory_nodes_is_empty(quorlock: CommandLine) -> None:
    assert listed(quorlock, "--node", "memory://a") == []


@every_installation
def test_watch_prints_a_line_for_each_change(quorlock: CommandLine, servers: Servers) -> None:
    process = quorlock.start("watch", "--interval", "20ms", "r", "other")
    assert [line(process), line(process)] == ["r: free", "other: free"]
    holder = quorlock.start("run", "--holder", "one", "r", "--", "sh", "-c", "echo; read x")
    line(holder)
    # The nodes are not changed at the same moment, so the resource may be contested in between.
    while not (changed := line(process)).startswith("r: held by one, fence "):
        assert changed.startswith("r: contested")
    waiter = quorlock.start("run", "--wait", "forever", "r", "--", "sh", "-c", "echo; read x")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    assert line(process).endswith(", 1 client waits")
    finish(holder)
    line(waiter)
    finish(waiter)
    while line(process) != "r: free":
        pass
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_watch_prints_a_line_when_readers_come_and_go(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = quorlock.start("watch", "--interval", "20ms", "r")
    assert line(process) == "r: free"
    leases = []
    for readers in ["1 reader", "2 readers"]:
        done = quorlock.run("acquire", "--shared", "--ttl", "10m", "r")
        leases.append(done.stdout.strip())
        while f"held by {readers}" not in line(process):
            pass
    # The fence stays that of the last reader.
    assert quorlock.run("release", "--lease", leases[0]).returncode == 0
    while "held by 1 reader" not in line(process):
        pass
    assert quorlock.run("release", "--lease", leases[1]).returncode == 0
    while line(process) != "r: free":
        pass
    process.send_signal(signal.SIGINT)
    assert finish(process).returncode == 130


@pytest.mark.parametrize(("command", "flags"), [("watch", []), ("list", ["--watch"])])
def test_watch_without_names_shows_all_that_are_held(
    quorlock: CommandLine, servers: Servers, command: str, flags: list[str]
) -> None:
    steal(servers, "text")
    process = quorlock.start(command, *flags, "-i", "20ms", "--json")
    for name in ["a", "b"]:
        store(servers, name, secrets.token_hex(20))
        status = json.loads(line(process))
        assert (status["resource"], status["state"]) == (name, "held")
    for server in servers:
        server.command("DEL", "a")
    # The nodes are not changed at the same moment.
    while (status := json.loads(line(process)))["state"] != "free":
        assert status["resource"] == "a"
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 128 + signal.SIGTERM


def test_watch_goes_on_after_an_outage(quorlock: CommandLine, servers: Servers) -> None:
    store(servers, "a", secrets.token_hex(20))
    process = quorlock.start("watch", "-i", "20ms", *SOON, "--node-timeout", "50ms")
    assert line(process).startswith("a: held")
    frozen = [servers[0], servers[1]]
    for server in frozen:
        server.freeze()
    assert process.stderr
    assert "too few nodes could list" in process.stderr.readline()
    for server in frozen:
        server.thaw()
    store(servers, "b", secrets.token_hex(20))
    while not line(process).startswith("b: held"):
        pass
    process.send_signal(signal.SIGINT)
    assert finish(process).returncode == 130


def test_list_watch_prints_a_line_for_each_change_of_names_with_the_prefix(
    quorlock: CommandLine, servers: Servers
) -> None:
    store(servers, "invoices:1", secrets.token_hex(20))
    process = quorlock.start("list", "--watch", "--interval", "20ms", "orders:")
    assert process.stderr
    note = "quorlock: nothing whose name begins with orders: is held\n"
    assert process.stderr.readline() == note
    store(servers, "orders:1", f"{secrets.token_hex(20)};web-7:4121")
    # The nodes are not changed at the same moment, so the resource may be contested in between.
    while (changed := line(process)) != "orders:1: held by web-7:4121":
        assert changed.startswith("orders:1: contested")
    for server in servers:
        server.command("DEL", "orders:1")
    while line(process) != "orders:1: free":
        pass
    assert process.stderr.readline() == note
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_list_watch_says_that_the_limit_leaves_resources_out(
    quorlock: CommandLine, servers: Servers
) -> None:
    for name in ["a", "b"]:
        store(servers, name, secrets.token_hex(20))
    process = quorlock.start("list", "--watch", "--limit", "1", "-i", "20ms")
    assert process.stderr
    assert line(process).startswith("a: held") or line(process).startswith("b: held")
    assert "there may be more" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 128 + signal.SIGTERM


def test_list_without_watch_has_no_interval(quorlock: CommandLine) -> None:
    done = quorlock.run("list", "--interval", "1s")
    assert (done.returncode, done.stdout) == (64, "")
    assert "--watch" in done.stderr
    for flag in ["--interval", "-i"]:
        done = quorlock.run("list", "--watch", flag, "0")
        assert (done.returncode, done.stdout) == (64, "")
        assert "--interval must be longer than 0" in done.stderr
