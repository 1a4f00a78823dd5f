"""`quorlock serve` under clients that use up processor time, files and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish
from daemons import Connection, Daemon
from fleet.resp import Reply, ServerReplyError, encode_command
from serve_load import TTL, Victim, load, memory, soak, with_files
from servers import Servers
from waiting import wait_until

SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quorlock.sock"


@pytest.fixture
def program(servers: Servers) -> CommandLine:
    """The program alone: how the daemon is installed does not matter here."""
    return CommandLine("cargo", servers.urls)


def test_a_short_lease_survives_all_loads_at_once(
    program: CommandLine, path: Path, servers: Servers
) -> None:
    measured = soak(program, servers, path, SECONDS)
    assert measured["connections"] > 1000
    assert measured["refused"] > 0


def test_clients_that_connect_and_close_delay_no_renewal(program: CommandLine, path: Path) -> None:
    with Daemon(program, path) as daemon:
        victim = Victim(daemon)
        with load(path, "connect_and_close", "connect_and_close"):
            victim.hold(3 * TTL / 1000)
        assert int(str(victim.client.ask("UNLOCK", victim.lease))) == 1


# Files


def reply_or_error(client: Connection) -> Reply:
    """Returns the next reply, or the text of an error."""
    try:
        return client.reply()
    except ServerReplyError as error:
        return str(error)


def clients_until_refused(daemon: Daemon) -> list[Connection]:
    """Connects until the daemon turns a client away."""
    clients: list[Connection] = []
    while True:
        client = daemon.connect()
        # The daemon may close the connection before the request.
        with contextlib.suppress(BrokenPipeError):
            client.send("PING")
        answered = reply_or_error(client)
        if answered != "PONG":
            assert answered == "ERR max number of clients reached"
            client.close()
            return clients
        clients.append(client)


@every_installation
def test_clients_leave_files_for_the_nodes(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    limited = with_files(quorlock, 100)
    with Daemon(limited, path) as daemon, contextlib.ExitStack() as stack:
        victim = Victim(daemon)
        clients = clients_until_refused(daemon)
        for client in clients:
            stack.callback(client.close)
        assert 10 < len(clients) < 90
        # All connections to the nodes are replaced, also those of subscriptions.
        for server in servers:
            for kind in ("normal", "pubsub"):
                server.command("CLIENT", "KILL", "TYPE", kind)
            victim.hold(0.5)
        victim.hold(1.5 * TTL / 1000)
        nodes = victim.client.status()["stats"]["nodes"]
        assert [node["state"] for node in nodes] == ["up"] * 3
        # A waiter gets the lock although all files are in use.
        clients[0].send("LOCK", "victim", "WAIT", "FOREVER")
        wait_until(lambda: victim.client.status()["waiting"] == 1)
        assert victim.client.ask("UNLOCK", victim.lease) == 1
        assert isinstance(clients[0].reply(), list)
        # There is room again for as many as leave.
        clients.pop().close()
        wait_until(lambda: clients[0].status()["connected"] == len(clients) + 1)
        with daemon.connect() as client:
            assert client.ask("PING") == "PONG"
        ended = daemon.terminate()
        assert "has room for " in ended.stderr
        assert "clients, not for --max-clients 10000" in ended.stderr


def test_too_few_files_are_an_error(program: CommandLine, path: Path) -> None:
    seen = set()
    for files in range(4, 80):
        process = with_files(program, files).start("serve", "--socket", str(path))
        assert process.stdout
        if process.stdout.readline():
            process.terminate()
            assert finish(process).returncode == 0
            break
        done = finish(process)
        # A dynamic program needs some files to start at all.
        if "error while loading shared libraries" in done.stderr:
            continue
        assert done.returncode in (69, 125), (files, done)
        assert "open files" in done.stderr, (files, done)
        assert done.stderr.startswith("quorlock: "), (files, done)
        assert done.stderr.count("\n") == 1, (files, done)
        assert not path.exists()
        seen.add(done.returncode)
    else:
        raise AssertionError("it never starts")
    assert 125 in seen


@pytest.mark.parametrize("command", ["status r", "run r -- true", "list", "doctor", "acquire r"])
def test_commands_with_too_few_files_report_that(command: str, program: CommandLine) -> None:
    usual = program.run(*command.split()).returncode
    for files in range(4, 24):
        done = with_files(program, files).run(*command.split())
        told = done.stdout + done.stderr
        if "error while loading shared libraries" in told:
            continue
        if "open files" not in told:
            assert done.returncode == usual, (files, done)
            return
        # With a majority of the nodes, it may succeed.
        assert done.returncode in (usual, 1, 2, 69, 125, 126), (files, done)
        assert "panicked" not in told, (files, done)
    raise AssertionError("it never works")


# Memory


def test_half_a_request_must_be_finished_in_time(program: CommandLine, path: Path) -> None:
    with Daemon(program, path) as daemon, daemon.connect() as half, daemon.connect() as other:
        half.lock("r")
        half.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$1000000\r\nxxx")
        # An idle connection has no deadline.
        assert other.ask("PING") == "PONG"
        assert half.reader.read() == b"-ERR the request was not finished in time\r\n"
        # Its leases are released.
        other.lock("r", "WAIT", 30_000)
        assert other.ask("PING") == "PONG"
        note = "closed a connection whose client did not finish its request"
        assert note in daemon.terminate().stderr


def test_half_requests_stay_within_the_memory(program: CommandLine, path: Path) -> None:
    half = b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 950_000
    with Daemon(program, path, "--max-memory", "16MiB") as daemon, contextlib.ExitStack() as stack:
        victim = Victim(daemon)
        before = memory(daemon)
        for _ in range(200):
            client = stack.enter_context(daemon.connect())
            with contextlib.suppress(OSError):
                client.socket.sendall(half)
        # All others are closed.
        wait_until(lambda: victim.client.status()["connected"] < 20)
        victim.check()
        assert memory(daemon) - before < 32
        status = victim.client.status()
        assert 0 < status["memory"] <= status["max_memory"] == 16 << 20


def test_requests_that_wait_keep_no_memory_of_replies(program: CommandLine, path: Path) -> None:
    with Daemon(program, path, "--max-memory", "16MiB") as daemon, contextlib.ExitStack() as stack:
        victim = Victim(daemon)
        echo = encode_command("ECHO", "x" * 1_000_000)
        lost = encode_command("LOST", victim.lease)
        before = memory(daemon)
        for _ in range(100):
            client = stack.enter_context(daemon.connect())
            client.socket.sendall(echo + lost)
            assert client.reply() == "x" * 1_000_000
        assert memory(daemon) - before < 32
        victim.check()


def test_leases_stay_within_the_memory(program: CommandLine, path: Path) -> None:
    with Daemon(program, path, "--max-memory", "16MiB") as daemon, contextlib.ExitStack() as stack:
        victim = Victim(daemon)
        before = memory(daemon)
        client = stack.enter_context(daemon.connect())
        leases = []
        for lease in range(60):
            names = [f"{lease}-{number}".ljust(8000, "x") for number in range(64)]
            client.send("LOCK", "RESOURCES", 64, *names)
            reply = reply_or_error(client)
            if not isinstance(reply, list):
                assert (
                    reply == "ERR the clients of the daemon use all of its memory: see --max-memory"
                )
                break
            leases.append(str(reply[0]))
        assert 2 <= len(leases) < 6
        assert memory(daemon) - before < 32
        # Others, and small requests, go on.
        victim.check()
        for held in leases:
            assert client.ask("UNLOCK", held) == 1
        client.lock("RESOURCES", 64, *names)


def test_the_status_takes_as_long_for_many_clients(program: CommandLine, path: Path) -> None:
    with Daemon(program, path) as daemon, contextlib.ExitStack() as stack:
        for number in range(1200):
            client = stack.enter_context(daemon.connect())
            if number % 100 == 0:
                client.lock(f"r{number}")
        assert client.ask("PING") == "PONG"
        status = client.status()
        # All are counted, and the first 1,000 described.
        assert (status["connected"], status["leases"]) == (1200, 12)
        assert len(status["clients"]) == 1000
        assert status["clients"][0]["leases"] == 1


# The end


@pytest.mark.parametrize("name", ["HUP", "QUIT", "USR1", "USR2", "ALRM"])
def test_a_signal_that_asks_for_no_end_is_a_failure(
    name: str, program: CommandLine, path: Path
) -> None:
    number = signal.Signals[f"SIG{name}"]
    with Daemon(program, path) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        daemon.process.send_signal(number)
        wait_until(lambda: not path.exists())
        # It drains nevertheless.
        assert client.ask("UNLOCK", lease) == 1
        assert finish(daemon.process).returncode == 128 + number


def test_a_manager_that_does_not_read_delays_nothing(
    program: CommandLine, path: Path, tmp_path: Path
) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        manager.bind(str(tmp_path / "notify"))
        other.setblocking(False)
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"x", str(tmp_path / "notify"))
                filled += 1
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with Daemon(program, path, environment=environment) as daemon:
            with daemon.connect() as client:
                client.lock("r")
            # It is told as soon as it reads.
            for _ in range(filled):
                assert manager.recv(100) == b"x"
            manager.settimeout(60)
            assert manager.recv(100) == b"READY=1"
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.sendto(b"x", str(tmp_path / "notify"))
            assert daemon.terminate().returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_daemon_that_cannot_report_that_it_is_ready_leaves_no_socket(
    program: CommandLine, path: Path
) -> None:
    program.program = ["sh", "-c", 'exec "$@" > /dev/full', "sh", *program.program]
    done = program.run("serve", "--socket", str(path))
    assert done.returncode == 125
    assert "the result cannot be printed" in done.stderr
    assert not path.exists()


def test_a_daemon_whose_ready_line_nobody_reads_ends_on_a_signal(
    program: CommandLine, path: Path
) -> None:
    fill = (
        "import os, sys; os.set_blocking(1, False)\n"
        "try:\n while True: os.write(1, b'x' * 4096)\n"
        "except BlockingIOError: os.set_blocking(1, True)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    program.program = [sys.executable, "-c", fill, *program.program]
    process = program.start("serve", "--socket", str(path))
    wait_until(path.exists)
    began = time.monotonic()
    process.terminate()
    assert process.wait(60) == 0
    assert time.monotonic() - began < 30
    assert not path.exists()
    finish(process)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_passed_socket_must_listen(
    kind: socket.SocketKind, program: CommandLine, path: Path
) -> None:
    script = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3)\n"
        "os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}\n"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    with socket.socket(socket.AF_UNIX, kind) as passed:
        passed.bind(str(path))
        # Another number, so that dup2 makes a file that stays open.
        with socket.socket(fileno=os.dup(passed.fileno()), family=passed.family, type=kind) as high:
            program.program = [sys.executable, "-c", script, str(high.fileno()), *program.program]
            os.set_inheritable(high.fileno(), True)
            done = subprocess.run(
                [*program.program, "serve"],
                env=program.environment,
                pass_fds=[high.fileno()],
                capture_output=True,
                text=True,
                timeout=60,
            )
    assert done.returncode == 64
    assert done.stderr.startswith("quorlock: LISTEN_FDS: not a stream socket that listens")


def test_a_request_behind_one_that_waits_is_counted(program: CommandLine, path: Path) -> None:
    with Daemon(program, path) as daemon, daemon.connect() as client, daemon.connect() as waiter:
        client.lock("r")
        idle = client.status()["memory"]
        waiter.send("LOCK", "r", "WAIT", "FOREVER")
        waiter.socket.sendall(encode_command("ECHO", "x" * 500_000)[:400_000])
        wait_until(lambda: int(client.status()["memory"]) > idle + 400_000)
        waiter.close()
        wait_until(lambda: int(client.status()["memory"]) < idle)


def test_a_pipeline_survives_when_others_use_all_memory(program: CommandLine, path: Path) -> None:
    count = 2_000
    with Daemon(program, path, "--max-memory", "4MiB") as daemon, contextlib.ExitStack() as stack:
        client, other = (stack.enter_context(daemon.connect()) for _ in range(2))
        lease, _ = client.lock("r")
        for length in (8_000, 100, 1):
            for number in range(10_000):
                other.send("LOCK", f"{length}-{number}".ljust(length, "x"))
                if not isinstance(reply_or_error(other), list):
                    break
        client.socket.sendall(encode_command("EXTEND", lease) * count)
        assert all(int(str(client.reply())) > 0 for _ in range(count))
        assert client.ask("UNLOCK", lease) == 1


def test_a_client_that_leaves_with_input_unread_leaves_nothing(
    program: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(program, path) as daemon, daemon.connect() as client, daemon.connect() as waiter:
        client.lock("r")
        waiter.lock("s")
        waiter.send("LOCK", "r", "WAIT", "FOREVER")
        waiter.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiter.socket.send(encode_command("PING") * 10_000)
        waiter.close()
        wait_until(lambda: not any(server.command("EXISTS", "s") for server in servers))
