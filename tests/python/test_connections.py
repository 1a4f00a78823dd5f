"""Unix sockets, databases and ACL users in node URLs, on real servers."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from refusing import deny
from servers import Servers
from waiting import wait_until

import quorlock


def test_keys_are_stored_in_the_database_of_the_url(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    with quorlock.Client([f"{servers.urls[0]}/3"]) as client, client.lock("r"):
        assert servers[0].command("EXISTS", "r") == 0
        assert "db3:keys=2" in str(servers[0].command("INFO", "keyspace"))


def test_an_acl_user_with_key_patterns_can_lock_if_they_cover_all_keys(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)
    url = servers.urls[0].replace("//", "//locker:secret@")
    user = ["ACL", "SETUSER", "locker", "reset", "on", ">secret", "+@all"]
    keys = ["~orders:*", "~{orders:*}:fence", "~{orders:*}:queue"]
    servers[0].command(*user, *keys, "&orders:quorlock:*")
    with quorlock.Client([url], key_prefix="orders:", wait=60) as client:
        with client.lock("1", "2") as lease, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.lock("2").acquire)
            wait_until(lambda: servers[0].command("EXISTS", "{orders:2}:queue") == 1)
            lease.release()
            assert waiting.result().release()
        assert "noperm" not in client.stats().nodes[0].outcomes
    # The server checks all keys of a script, so it refuses the acquire without the queue pattern.
    servers[0].command(*user, *keys[:2])
    with quorlock.Client([url], key_prefix="orders:") as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("3", wait=0).acquire()
        assert caught.value.nodes[0].outcome == "noperm"
        [found] = (f for f in client.doctor().nodes[0].findings if f.check == "permissions")
        assert found.level == "error"
    assert servers[0].command("EXISTS", "orders:3", "{orders:3}:queue") == 0


@pytest.mark.parametrize("rights", ["resetchannels", "-publish", "-zadd", "-zrange", "-@sortedset"])
def test_a_waiter_without_permission_to_queue_or_subscribe_gets_the_lock(
    start_servers: Callable[..., Servers], rights: str
) -> None:
    servers = start_servers(1)
    with (
        quorlock.Client([deny(servers[0], rights)], wait=60) as client,
        quorlock.Client(servers.urls) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = other.lock("r").acquire()
        waiting = pool.submit(client.lock("r", "s").acquire)
        wait_until(lambda: "held" in client.stats().nodes[0].outcomes)
        lease.release()
        assert waiting.result().release()


def test_a_port_of_another_program_is_reported() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        with quorlock.Client([f"redis://127.0.0.1:{web.server_address[1]}"]) as client:
            with pytest.raises(quorlock.QuorumError) as caught:
                client.lock("r", wait=0).acquire()
        web.shutdown()
    [node] = caught.value.nodes
    assert node.outcome == "unreachable"
    assert node.detail.startswith(
        "the answer makes no sense: see that this is the port of a Redis or Valkey server"
    )


class _Web(socketserver.StreamRequestHandler):
    """Answers as a web server does."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.rfile.read()  # To close with unread data would reset the connection.


HANGS = """
import contextlib, os, time, quorlock
client = quorlock.Client(
    [f"redis://hangs.test:{port}" for port in (1, 2, 3)], connect_timeout=0.05, wait=0
)
details, end = set(), time.monotonic() + 2
while time.monotonic() < end:
    try:
        client.lock("r").acquire()
    except quorlock.QuorumError as error:
        details |= {node.detail for node in error.nodes}
def name(task):
    with contextlib.suppress(FileNotFoundError):
        return open(f"/proc/self/task/{task}/comm").read().strip()
tasks = [name(task) for task in os.listdir("/proc/self/task")]
print(tasks.count("quorlock-lookup"), *details)
os._exit(0)
"""


def test_a_name_service_that_hangs_costs_one_thread_for_each_name(hanging: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        env=os.environ | {"LD_PRELOAD": hanging},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("1 "), done.stdout
    assert "50 ms" in done.stdout


TWO_ADDRESSES = """
import sys, time, quorlock
for _ in range(6):
    began = time.monotonic()
    with quorlock.Client(sys.argv[1:], wait=0) as client, client.lock("r"):
        print(time.monotonic() - began)
"""


def test_the_next_address_is_tried_if_the_first_one_drops_packets(
    start_servers: Callable[..., Servers], hanging: str
) -> None:
    [server] = start_servers(1)
    with black_hole(("127.0.0.9", server.port)):
        done = subprocess.run(
            [sys.executable, "-c", TWO_ADDRESSES, f"redis://two.test:{server.port}"],
            env=os.environ | {"LD_PRELOAD": hanging},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    first, *others = map(float, done.stdout.split())
    assert first >= 0.25
    assert min(others) < 0.25, "it does not remember which address worked"


@contextlib.contextmanager
def black_hole(address: tuple[str, int]) -> Iterator[None]:
    """An address that drops what is sent to it: the queue of its listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(address)
        listener.listen(0)
        is_full = False
        while not is_full:
            client = stack.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(address)
            except TimeoutError:
                is_full = True
        yield
