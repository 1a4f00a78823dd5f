"""`quorlock status`, `release`, `doctor` and `bench`, and how nodes and options are given."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from cli.installations import every_installation
from command_line import CommandLine, finish, line, parse_json
from nodes import freeze, keys, queued, steal, thaw
from servers import Servers
from waiting import wait_until

import quorlock as library

SOON = ["--connect-timeout", "50ms"]


def all_keys(servers: Servers) -> list[object]:
    """Returns all keys on all nodes, including fence counters."""
    found: list[object] = []
    for server in servers:
        reply = server.command("KEYS", "*")
        assert isinstance(reply, list)
        found += reply
    return found


@every_installation
def test_status_shows_holder_and_waiters(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("status", "r")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "r: free"
    assert all(url in done.stdout for url in servers.urls)

    with library.Client(servers.urls) as client, client.lock("r", holder="me") as lease:
        done = quorlock.run("status", "r")
        assert (done.returncode, done.stderr) == (1, "")
        first, *nodes = done.stdout.splitlines()
        assert first.startswith("r: held by me for ")
        assert f", token {lease.token[:8]}…, fence {lease.fence}, free in " in first
        assert all(": held by me, for " in node for node in nodes)
        assert lease.token[:9] not in done.stdout

        waiter = quorlock.start("run", "--wait", "forever", "r", "--", "true")
        wait_until(lambda: queued(servers) == [1, 1, 1])
        done = quorlock.run("status", "--json", "r", "other")
        assert done.returncode == 1
        held, free = parse_json(done.stdout)
        assert held.keys() == {
            *("resource", "state", "holder", "readers", "token", "since_ms"),
            *("fence", "expires_in_ms", "waiters", "nodes"),
        }
        assert (held["resource"], held["state"], held["waiters"]) == ("r", "held", 1)
        assert (held["token"], held["fence"]) == (lease.token[:8], lease.fence)
        assert (held["holder"], held["since_ms"]) == ("me", lease.fence // 1000)
        assert lease.token[:9] not in done.stdout
        assert 0 < held["expires_in_ms"] <= 10_000
        assert [node["address"] for node in held["nodes"]] == servers.urls
        for node in held["nodes"]:
            assert (node["outcome"], node["token"]) == ("held", lease.token[:8])
            assert node["holder"] == "me"
            assert (node["fence"], node["waiters"]) == (lease.fence, 1)
        assert (free["resource"], free["state"], free["token"]) == ("other", "free", None)
    assert finish(waiter).returncode == 0


def test_status_reports_disagreeing_nodes_as_contested(
    quorlock: CommandLine, servers: Servers
) -> None:
    servers[0].command("SET", "r", "one", "PX", 100_000)
    servers[1].command("HSET", "r", "of another", "type")
    done = quorlock.run("status", "r")
    assert (done.returncode, done.stdout.splitlines()[0].split(",")[0]) == (1, "r: contested")
    assert "held by token one" in done.stdout
    assert "not a token" in done.stdout
    servers[1].kill()
    done = quorlock.run("status", "--json", "r", *SOON)
    (status,) = parse_json(done.stdout)
    assert (done.returncode, status["state"]) == (69, "unknown")
    assert status["nodes"][1]["outcome"] == "unreachable"


def test_release_frees_the_lock_for_the_next_waiter(
    quorlock: CommandLine, servers: Servers
) -> None:
    done = quorlock.run("release", "--yes", "r")
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, "r: free")
    steal(servers, "r")
    # There is no terminal, so the command cannot ask for confirmation.
    done = quorlock.run("release", "r")
    assert (done.returncode, done.stdout) == (64, "")
    assert "--yes" in done.stderr
    assert keys(servers) == ["r"] * 3
    reader = quorlock.start("run", "--shared", "s", "--", "sh", "-c", "echo; read x")
    line(reader)
    done = quorlock.run("release", "s")
    assert (done.returncode, done.stdout) == (64, "")
    assert finish(reader).returncode == 1  # of `read` at the end of its input

    waiter = quorlock.start("run", "--wait", "forever", "r", "--", "echo", "ran")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    done = quorlock.run("release", "--force", "--json", "r")
    released = parse_json(done.stdout)
    assert (done.returncode, released["resource"], released["was"]) == (0, "r", "held")
    assert {node["outcome"] for node in released["nodes"]} == {"confirmed"}
    assert finish(waiter).stdout == "ran\n"


def test_a_forced_release_stops_the_holder(quorlock: CommandLine, servers: Servers) -> None:
    holder = quorlock.start("run", "--ttl", "1s", "r", "--", "sh", "-c", "echo; sleep 1000")
    line(holder)
    assert quorlock.run("release", "--yes", "r").returncode == 0
    assert finish(holder).returncode == 79


def test_release_works_while_a_minority_is_down(quorlock: CommandLine, servers: Servers) -> None:
    steal(servers, "r")
    servers[0].kill()
    assert quorlock.run("release", "--yes", "r").returncode == 0
    servers[2].command("SET", "r", "thief")
    servers[1].kill()
    done = quorlock.run("release", "--yes", "--json", "r", *SOON)
    assert (done.returncode, parse_json(done.stdout)["state"]) == (69, "unknown")


def test_doctor_reports_warnings_and_errors(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert "warning persistence" in done.stdout.replace("  ", " ")
    done = quorlock.run("doctor", "--json")
    diagnosis = parse_json(done.stdout)
    assert (diagnosis["level"], len(diagnosis["nodes"])) == ("warning", 3)
    servers[0].kill()
    done = quorlock.run("doctor", *SOON)
    assert done.returncode == 2
    assert "error" in done.stdout


def test_doctor_finds_no_problem_on_well_configured_nodes(
    quorlock: CommandLine, servers: Servers
) -> None:
    for server in servers:
        server.command("CONFIG", "SET", "appendonly", "yes")
        server.command("CONFIG", "SET", "appendfsync", "always")
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    arguments = ["doctor", "--ttl", "1s", "--restart-guard", "1s"]
    # With the restart guard, a node has no vote until it has been up for 1 s.
    wait_until(lambda: "does not vote yet" not in quorlock.run(*arguments).stdout)
    done = quorlock.run(*arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


PROBE = ["doctor", "--require", "majority"]


def test_a_probe_succeeds_while_a_majority_can_vote(
    quorlock: CommandLine, servers: Servers
) -> None:
    done = quorlock.run(*PROBE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 of 3 nodes can vote, 2 needed\n"
    assert all_keys(servers) == []
    servers[0].kill()
    done = quorlock.run(*PROBE)
    assert (done.returncode, done.stdout) == (0, "2 of 3 nodes can vote, 2 needed\n")
    done = quorlock.run(*PROBE, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = quorlock.run(*PROBE, "--json")
    probed = parse_json(done.stdout)
    assert (done.returncode, probed["can_vote"], probed["needed"]) == (0, 2, 2)
    outcomes = [node["outcome"] for node in probed["nodes"]]
    assert outcomes == ["unreachable", "granted", "granted"]
    assert quorlock.run("doctor", "--require", "all", "--quiet").returncode == 69

    servers[1].kill()
    done = quorlock.run(*PROBE)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("quorlock: 1 of 3 nodes can vote, 2 needed\n")
    done = quorlock.run(*PROBE, "--quiet")
    assert (done.returncode, done.stdout) == (69, "")
    assert len(done.stderr.splitlines()) == 1
    done = quorlock.run(*PROBE, "--quiet", "--json")
    error = parse_json(done.stderr)
    assert (done.returncode, error["error"], error["exit_status"]) == (69, "NO_QUORUM", 69)
    outcomes = [node["outcome"] for node in error["nodes"]]
    assert outcomes == ["unreachable", "unreachable", "granted"]


def test_a_probe_does_not_wait_for_a_node_that_hangs(
    quorlock: CommandLine, servers: Servers
) -> None:
    proxy = servers.proxy(0)
    proxy.mode = "hold"
    quorlock.environment["QUORLOCK_NODES"] = ",".join([proxy.url, *servers.urls[1:]])
    began = time.monotonic()
    done = quorlock.run(*PROBE, "--connect-timeout", "20s")
    assert time.monotonic() - began < 20
    assert (done.returncode, done.stdout) == (0, "at least 2 of 3 nodes can vote, 2 needed\n")
    servers[1].kill()
    done = quorlock.run(*PROBE, *SOON)
    assert done.returncode == 69
    assert "timeout" in done.stderr


def test_a_probe_counts_only_nodes_that_accept_votes(
    quorlock: CommandLine, servers: Servers
) -> None:
    # Full memory, and a user without the permission to write: two of three cannot vote.
    servers[0].command("CONFIG", "SET", "maxmemory", "1")
    servers[1].command("ACL", "SETUSER", "default", "-set")
    done = quorlock.run(*PROBE, "--json")
    error = parse_json(done.stderr)
    assert done.returncode == 69
    assert [node["outcome"] for node in error["nodes"]] == ["oom", "noperm", "granted"]
    servers[0].command("CONFIG", "SET", "maxmemory", "0")
    assert quorlock.run(*PROBE).returncode == 0


def test_a_probe_does_not_count_guarded_nodes(quorlock: CommandLine, servers: Servers) -> None:
    guard = ["--ttl", "1s", "--restart-guard"]
    done = quorlock.run(*PROBE, *guard, "1h")
    assert done.returncode == 69
    assert "0 of 3 nodes can vote" in done.stderr
    assert "guarded" in done.stderr
    wait_until(lambda: quorlock.run(*PROBE, *guard, "1s").returncode == 0)
    # The guard starts with the connection if the server does not report its uptime.
    for server in servers:
        server.command("ACL", "SETUSER", "default", "-info")
    assert quorlock.run(*PROBE, *guard, "1s").returncode == 69
    assert quorlock.run(*PROBE).returncode == 0


def test_a_probe_refuses_duplicate_nodes_like_run(quorlock: CommandLine, servers: Servers) -> None:
    urls = [servers.urls[0], servers.urls[0].replace("127.0.0.1", "localhost"), servers.urls[1]]
    quorlock.environment["QUORLOCK_NODES"] = ",".join(urls)
    probe, run = quorlock.run(*PROBE), quorlock.run("run", "r", "--", "true")
    assert (probe.returncode, run.returncode) == (64, 64)
    assert "same server" in probe.stderr


def test_bench_measures_and_deletes_its_keys(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("bench", "--duration", "200ms", "--concurrency", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    measured = parse_json(done.stdout)
    assert measured["concurrency"] == 4
    assert measured["cycles"] >= 4
    assert measured["seconds"] >= 0.2
    for times in (measured[name] for name in ["acquire_ms", "release_ms", "cycle_ms"]):
        assert 0 < times["median"] <= times["p90"] <= times["p99"] <= times["max"]
    assert all_keys(servers) == []
    done = quorlock.run("bench", "-d", "50ms")
    assert done.returncode == 0
    assert [row.split()[0] for row in done.stdout.splitlines()[3:]] == [
        *("acquire", "release", "both")
    ]


@every_installation
def test_an_interrupt_ends_bench_and_leaves_no_lock(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = quorlock.start("bench", "--duration", "1h")
    wait_until(lambda: bool(all_keys(servers)))
    process.send_signal(signal.SIGINT)
    assert finish(process).returncode == 130
    wait_until(lambda: not keys(servers))


def test_another_interrupt_ends_the_clean_up_of_bench(
    quorlock: CommandLine, servers: Servers
) -> None:
    options = ["--ttl", "24h", "--node-timeout", "1h", "--connect-timeout", "1h"]
    process = quorlock.start("bench", "--duration", "1h", *options)
    wait_until(lambda: bool(all_keys(servers)))
    freeze(servers)

    def is_ended_by_interrupt() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    # The first one ends the measurement.
    wait_until(is_ended_by_interrupt)
    thaw(servers)
    assert finish(process).returncode == 130


@every_installation
def test_an_interrupt_ends_a_command_that_waits_for_nodes(
    quorlock: CommandLine, servers: Servers
) -> None:
    proxy = servers.proxy(0)
    proxy.mode = "hold"
    process = quorlock.start("doctor", "--node", proxy.url, "--connect-timeout", "1h")
    wait_until(lambda: proxy.connections > 0)
    process.send_signal(signal.SIGINT)
    assert finish(process).returncode in {-signal.SIGINT, 130}


def test_nodes_come_from_flags_files_or_the_environment(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    named = quorlock.environment.pop("QUORLOCK_NODES")
    done = quorlock.run("status", "r")
    assert done.returncode == 64
    assert all(way in done.stderr for way in ["--node URL", "--nodes-file", "QUORLOCK_NODES"])

    file = tmp_path / "nodes"
    file.write_text("# the nodes\n\n" + "\n".join(servers.urls) + "\n")
    commented = tmp_path / "commented"
    one, two, three = servers.urls
    commented.write_bytes(
        f"# the nodes\r\n\r\n{one} # the first\r\n\t{two}\t# the second\r\n{three}\r\n".encode()
    )
    for arguments, environment in [
        ([], {"QUORLOCK_NODES": named}),
        ([], {"QUORLOCK_NODES": f" {one} , {two},\n{three}"}),
        (["--nodes-file", str(commented)], {}),
        ([], {"QUORLOCK_NODES_FILE": str(file), "QUORLOCK_NODES": "redis://127.0.0.1:1"}),
        (["--nodes-file", str(file)], {}),
        (["--node", named], {"QUORLOCK_NODES_FILE": "/no/such/file"}),
        ([word for url in servers.urls for word in ("--node", url)], {}),
    ]:
        done = quorlock.run(*arguments, "status", "--json", "r", environment=environment)
        (status,) = parse_json(done.stdout)
        assert [node["address"] for node in status["nodes"]] == servers.urls


def test_a_number_sign_in_a_url_begins_no_comment(quorlock: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("redis://:pass#word@127.0.0.1:1 # a comment\n")
    done = quorlock.run("--nodes-file", str(file), "status", "r")
    # The URL is not cut: its password must be percent-encoded, which the message says.
    assert (done.returncode, done.stdout) == (64, "")
    assert "percent-encoded" in done.stderr
    assert "word" not in done.stderr.replace("password", "")


def test_options_come_from_the_environment(quorlock: CommandLine, servers: Servers) -> None:
    quorlock.environment |= {"QUORLOCK_KEY_PREFIX": "app:", "QUORLOCK_TTL": "1h"}
    script = "echo; read x"
    process = quorlock.start("run", "r", "--", "sh", "-c", script)
    line(process)
    wait_until(lambda: keys(servers) == ["app:r"] * 3)
    left = servers[0].command("PTTL", "app:r")
    assert isinstance(left, int)
    assert left > 3_000_000
    finish(process)
