"""`quorlock serve`: the socket, its limits, and how the daemon ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish
from daemons import Connection, Daemon
from fleet.resp import encode_command, read_reply
from nodes import freeze, is_free, keys, steal, thaw
from servers import Servers
from waiting import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quorlock.sock"


# The socket


def test_the_socket_is_open_to_its_owner_only(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path):
        found = path.stat()
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


def test_the_socket_gets_the_wanted_mode_and_group(quorlock: CommandLine, path: Path) -> None:
    group = os.getgid()
    with Daemon(quorlock, path, "--mode", "0660", "--group", str(group)) as daemon:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == group
        with daemon.connect() as client:
            assert client.ask("PING") == "PONG"


WATCH = """
import os, pathlib, stat, sys
seen = set()
path = pathlib.Path(sys.argv[1])
print("watching", flush=True)
while not seen or 0o660 not in seen:
    try:
        seen.add(stat.S_IMODE(os.lstat(path).st_mode))
    except FileNotFoundError:
        pass
print(*map(oct, sorted(seen)))
"""


def test_the_mode_is_never_wider(quorlock: CommandLine, path: Path) -> None:
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCH, str(path)], stdout=subprocess.PIPE, text=True
    )
    with watcher:
        assert watcher.stdout
        watcher.stdout.readline()
        # With this umask, a file that is made without care is open to all.
        before = os.umask(0)
        try:
            with Daemon(quorlock, path, "--mode", "0660"):
                modes = watcher.stdout.readline().split()
        finally:
            os.umask(before)
    assert set(modes) <= {"0o0", "0o660"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_socket_gets_the_wanted_owner(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, "--owner", "nobody", "--group", "1"):
        found = path.stat()
        assert found.st_uid != 0
        assert found.st_gid == 1


def test_wrong_options_are_refused(quorlock: CommandLine, path: Path) -> None:
    serve = ["serve", "--socket", str(path)]
    for options, expected in [
        (["--mode", "0999"], "a mode is an octal number from 0 to 0777"),
        (["--mode", "1777"], "a mode is an octal number from 0 to 0777"),
        (["--owner", "no such user"], "--owner: there is no no such user"),
        (["--group", "no such group"], "--group: there is no no such group"),
        (["--max-hold", "1ms"], "--max-hold must be a duration of 10 ms or more"),
        (["--wait=-1s"], "--wait must be a duration of 0 (one try) or more"),
        (["--drain=-1s"], "--drain must be a duration of 0 or more"),
        (["--max-clients", "0"], "0 is not in 1..=1000000"),
    ]:
        done = quorlock.run(*serve, *options)
        assert done.returncode == 64, (options, done)
        assert expected in done.stderr
    assert not path.exists()


def test_the_default_path_is_in_the_runtime_directory(
    quorlock: CommandLine, tmp_path: Path
) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    if os.getuid() == 0:
        pytest.skip("root has a directory of its own")
    process = quorlock.start("serve", environment=environment)
    assert process.stdout
    assert process.stdout.readline() == f"listening on {tmp_path}/quorlock.sock\n"
    process.terminate()
    assert finish(process).returncode == 0


def test_the_socket_of_a_live_daemon_is_left_alone(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        done = quorlock.run("serve", "--socket", str(path))
        assert done.returncode == 64
        assert done.stderr == f"quorlock: another process listens on {path}\n"
        with daemon.connect() as other:
            assert other.ask("PING") == "PONG"
        assert client.ask("UNLOCK", lease) == 1


def test_the_socket_of_a_killed_daemon_is_replaced(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, "--ttl", "500ms") as killed, killed.connect() as client:
        client.lock("r")
        killed.process.kill()
        # The client sees the end, and the lease expires by its ttl.
        assert client.is_closed()
    assert path.is_socket()
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r", "WAIT", 30000)
        assert client.ask("UNLOCK", lease) == 1
        wait_until(lambda: is_free(servers, "r"))


def test_an_id_is_never_issued_again(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        stale, _ = client.lock("r")
        assert daemon.terminate().returncode == 0
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        assert lease != stale
        for command in ("CHECK", "EXTEND", "DETACH", "UNLOCK", "LOST"):
            error = client.error(command, stale)
            assert error.startswith(f"ERR this daemon has not issued lease {stale}: ")
        assert client.ask("UNLOCK", lease) == 1


def test_a_daemon_whose_queue_is_full_is_left_alone(quorlock: CommandLine, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as frozen, contextlib.ExitStack() as stack:
        frozen.bind(str(path))
        frozen.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(path))
        done = quorlock.run("serve", "--socket", str(path))
        assert done.returncode == 64
        assert done.stderr == f"quorlock: another process listens on {path}\n"


@every_installation
def test_daemons_that_start_together_do_not_take_the_path_of_one_another(
    quorlock: CommandLine, path: Path
) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    started = [quorlock.start("serve", "--socket", str(path)) for _ in range(4)]
    # Those that lose end by themselves.
    wait_until(lambda: sum(process.poll() is None for process in started) == 1)
    (winner,) = (process for process in started if process.poll() is None)
    assert winner.stdout
    assert winner.stdout.readline() == f"listening on {path}\n"
    with Connection(path) as client:
        assert client.status()["pid"] == winner.pid or quorlock.installation == "npm"
    winner.terminate()
    assert [finish(process).returncode for process in started].count(64) == 3


def test_a_socket_that_was_never_opened_is_replaced(quorlock: CommandLine, path: Path) -> None:
    """A daemon was killed while it set the permissions of its socket."""
    unfinished = socket.socket(socket.AF_UNIX)
    unfinished.bind(str(path))
    unfinished.close()
    path.chmod(0)
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        assert client.ask("PING") == "PONG"


def test_a_daemon_starts_although_its_directory_is_locked(
    quorlock: CommandLine, path: Path
) -> None:
    """Every user who may read a directory may also lock it."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_SH)
        with Daemon(quorlock, path) as daemon, daemon.connect() as client:
            assert client.ask("PING") == "PONG"
            assert sorted(file.name for file in path.parent.iterdir()) == [path.name]
    finally:
        os.close(directory)


def test_other_files_are_left_alone(quorlock: CommandLine, path: Path) -> None:
    path.write_text("precious")
    done = quorlock.run("serve", "--socket", str(path))
    assert done.returncode == 64
    assert done.stderr == f"quorlock: {path} exists, and is not a socket\n"
    assert path.read_text() == "precious"


ACTIVATE = """
import os, sys
if sys.argv[1] != "3":
    os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


def activated(quorlock: CommandLine, passed: socket.socket) -> subprocess.Popen[str]:
    """Starts the daemon with this socket, as a service manager does."""
    return subprocess.Popen(
        [sys.executable, "-c", ACTIVATE, str(passed.fileno()), *quorlock.program, "serve"],
        env=quorlock.environment,
        pass_fds=[passed.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@every_installation
def test_a_service_manager_passes_the_socket_on(quorlock: CommandLine, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        # This client comes before the daemon.
        with Connection(path) as client:
            client.send("LOCK", "r")
            daemon = activated(quorlock, listener)
            reply = client.reply()
            assert isinstance(reply, list)
            assert daemon.stdout
            assert daemon.stdout.readline() == f"listening on {path}\n"
            assert client.ask("UNLOCK", str(reply[0])) == 1
        daemon.terminate()
        assert finish(daemon).returncode == 0
        # The socket is the service manager's.
        assert path.is_socket()


def test_other_sockets_are_refused(quorlock: CommandLine) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        done = finish(activated(quorlock, listener))
        assert done.returncode == 64
        assert done.stderr.startswith("quorlock: LISTEN_FDS: not a Unix socket: ")


@every_installation
def test_the_service_manager_is_notified(quorlock: CommandLine, path: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with Daemon(quorlock, path, environment=environment) as daemon:
            assert manager.recv(100) == b"READY=1"
            daemon.terminate()
            assert manager.recv(100) == b"STOPPING=1"


# Limits


def test_further_clients_are_turned_away(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, "--max-clients", "2") as daemon, daemon.connect() as first:
        with daemon.connect() as second:
            assert [first.ask("PING"), second.ask("PING")] == ["PONG", "PONG"]
            with daemon.connect() as third:
                assert third.reader.read() == b"-ERR max number of clients reached\r\n"
            status = first.status()
            assert (status["connected"], status["refused"]) == (2, 1)
        wait_until(lambda: first.status()["connected"] == 1)
        with daemon.connect() as third:
            assert third.ask("PING") == "PONG"


def test_a_connection_has_a_limited_number_of_leases(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, "--max-leases", "2") as daemon, daemon.connect() as client:
        client.lock("a")
        lease, _ = client.lock("b")
        expected = "ERR the connection has 2 leases, and may not have more"
        assert client.error("LOCK", "c").startswith(expected)
        with daemon.connect() as other:
            other.lock("c")
        assert client.ask("UNLOCK", lease) == 1
        client.lock("b")


def test_what_is_no_request_ends_the_connection(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        client.lock("r")
        # What came before is answered.
        client.socket.sendall(encode_command("ECHO", "x") + b"PING\r\n")
        assert client.reply() == "x"
        expected = b"-ERR Protocol error: a request is an array of bulk strings\r\n"
        assert client.reader.read() == expected
        wait_until(lambda: keys(servers) == [])


@every_installation
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/PID/fd")
def test_a_stderr_that_nobody_reads_delays_no_client(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, "--ttl", "3s") as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        stderr = daemon.process.stderr
        assert stderr
        # Leave no room, so that the first message has to wait.
        with contextlib.suppress(BlockingIOError):
            writer = os.open(f"/proc/{daemon.process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
            while True:
                os.write(writer, b"x" * 4096)
        os.close(writer)
        for _ in range(1100):
            with daemon.connect() as malformed:
                malformed.socket.sendall(b"PING\r\n")
                assert malformed.reader.read().startswith(b"-ERR Protocol error: ")
        # Longer than the ttl.
        time.sleep(3.5)
        assert int(str(client.ask("CHECK", lease))) > 0
        client.lock("s")
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.status()["is_draining"] is True)
        assert client.error("LOCK", "t").startswith("CLOSED ")
        client.close()
        assert daemon.process.wait(30) == 0


def send_for_ever(client: Connection) -> None:
    """Sends requests and reads no reply, until the daemon closes the connection."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            client.send("ECHO", "x" * 100_000)


def test_a_client_that_does_not_read_harms_no_other(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as slow, daemon.connect() as other:
        slow.lock("r")
        sender = threading.Thread(target=send_for_ever, args=[slow], daemon=True)
        sender.start()
        lease, _ = other.lock("s")
        assert other.ask("UNLOCK", lease) == 1
        # After ten seconds.
        wait_until(lambda: other.status()["connected"] == 1)
        sender.join()
        lease, _ = other.lock("r", "WAIT", 0)
        other.ask("UNLOCK", lease)
        ended = daemon.terminate()
        assert "closed a connection whose client did not read its replies" in ended.stderr


def test_a_request_of_many_parts_is_read(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        long = "x" * 1_000_000
        assert client.ask("ECHO", long) == long
        for byte in encode_command("ECHO", "a"):
            client.socket.sendall(bytes([byte]))
        assert client.reply() == "a"


def test_many_clients_are_served_side_by_side(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path) as daemon:
        clients = [daemon.connect() for _ in range(200)]
        for number, client in enumerate(clients):
            client.send("LOCK", f"r{number}", "TTL", 60000)
        assert all(isinstance(client.reply(), list) for client in clients)
        with daemon.connect() as other:
            assert other.status()["leases"] == 200
            for client in clients:
                client.close()
            wait_until(lambda: other.status()["leases"] == 0)


# The end


def test_clients_may_release_while_the_daemon_drains(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, "--drain", "60s") as daemon:
        client, idle, waiter = daemon.connect(), daemon.connect(), daemon.connect()
        lease, _ = client.lock("r")
        assert idle.ask("PING") == "PONG"
        waiter.send("LOCK", "r", "WAIT", "FOREVER")
        daemon.wait_until_waiting()
        daemon.process.send_signal(signal.SIGTERM)
        # Connections without leases are closed, and locks are refused.
        assert idle.is_closed()
        assert waiter.reader.read() == b"-CLOSED the daemon is about to end\r\n"
        assert client.error("LOCK", "s").startswith("CLOSED ")
        assert client.status()["is_draining"] is True
        wait_until(lambda: not path.exists())
        # The next daemon can start.
        with Daemon(quorlock, path) as following, following.connect() as other:
            assert other.error("LOCK", "r", "WAIT", 0).startswith("TIMEOUT ")
            assert client.ask("UNLOCK", lease) == 1
            assert client.is_closed()
            ended = finish(daemon.process)
            assert (ended.returncode, path.exists()) == (0, True)
            assert ended.stderr.startswith("quorlock: leases held: 1; waiting for their release")
            other.lock("r", "WAIT", 0)
    for connection in (client, idle, waiter):
        connection.close()


def test_what_is_left_after_the_drain_is_released(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, "--drain", "100ms") as daemon, daemon.connect() as client:
        client.lock("r", "TTL", 600_000)
        wait_until(lambda: keys(servers) == ["r"] * 3)
        assert daemon.terminate().returncode == 0
        assert client.is_closed()
        assert keys(servers) == []


def test_leases_that_are_lost_do_not_delay_the_end(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    options = ["--drain", "forever", "--ttl", "3s"]
    with Daemon(quorlock, path, *options) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        steal(servers, "r")
        assert str(client.ask("LOST", lease)).startswith("LEASELOST ")
        with daemon.connect() as other:
            other.lock("s")
            daemon.process.send_signal(signal.SIGTERM)
            # The one whose lease is lost is not waited for.
            assert client.is_closed()
            steal(servers, "s")
            assert other.is_closed()
        ended = finish(daemon.process)
        assert ended.returncode == 0
        assert ended.stderr.startswith("quorlock: leases held: 1; waiting for their release\n")


@every_installation
def test_a_second_signal_ends_the_drain(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, "--drain", "forever") as daemon, daemon.connect() as client:
        client.lock("r", "TTL", 600_000)
        wait_until(lambda: keys(servers) == ["r"] * 3)
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not path.exists())
        daemon.process.send_signal(signal.SIGINT)
        assert finish(daemon.process).returncode == 0
        assert keys(servers) == []


def test_the_daemon_ends_while_the_nodes_are_frozen(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    options = ["--drain", "0", "--connect-timeout", "200ms", "--node-timeout", "100ms"]
    with Daemon(quorlock, path, *options) as daemon, daemon.connect() as client:
        client.lock("r")
        freeze(servers)
        began = time.monotonic()
        assert daemon.terminate().returncode == 0
        assert time.monotonic() - began < 30
        assert not path.exists()
        thaw(servers)


def test_the_ready_line_is_json_if_wanted(quorlock: CommandLine, path: Path) -> None:
    process = quorlock.start("serve", "--socket", str(path), "--json")
    assert process.stdout
    ready = process.stdout.readline()
    assert ready.startswith(f'{{"socket":"{path}","pid":')
    with Connection(path) as client:
        client.send("PING")
        assert read_reply(client.reader) == "PONG"
    process.terminate()
    done = finish(process)
    assert (done.returncode, done.stderr) == (0, "")
