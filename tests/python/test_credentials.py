"""The option `credentials`: users and passwords from a function, asked for each new connection."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

FIRST, SECOND = "f1rst-s3cret", "s3cond-s3cret"

Login = tuple[str | None, str]


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(3, users={"app": f"on >{FIRST} ~* &* +@all"})


class Vault:
    """A store of passwords, as in a cloud. Returns them as a function or as a coroutine."""

    def __init__(self) -> None:
        self.password = FIRST
        self.asked: list[str] = []
        self.threads: set[str] = set()

    def login(self, address: str) -> Login:
        self.asked.append(address)
        self.threads.add(threading.current_thread().name)
        return "app", self.password

    async def login_async(self, address: str) -> Login:
        await asyncio.sleep(0.01)
        return self.login(address)

    def rotate(self, servers: Servers) -> None:
        self.password = SECOND
        for server in servers:
            server.command("ACL", "SETUSER", "app", "resetpass", f">{SECOND}")
            server.command("CLIENT", "KILL", "USER", "app")


def can_lock(client: quorlock.Client) -> bool:
    try:
        with client.lock("r", wait=0):
            return True
    except quorlock.QuorumError:
        return False


@pytest.mark.parametrize("form", ["login", "login_async"])
def test_each_connection_asks_for_credentials(servers: Servers, form: str) -> None:
    vault = Vault()
    with quorlock.Client(servers.urls, credentials=getattr(vault, form), node_timeout=5) as client:
        assert vault.asked == []
        assert can_lock(client)
        wait_until(lambda: sorted(vault.asked) == sorted(servers.urls))
        vault.rotate(servers)
        wait_until(lambda: can_lock(client))
        wait_until(lambda: len(vault.asked) >= 2 * len(servers.urls))
        shown = f"{client!r} {client.stats()} {client.doctor()}"
    assert "s3c" not in shown
    assert vault.threads == {"quorlock-credentials"}


def test_an_event_loop_runs_while_credentials_are_asked_for(servers: Servers) -> None:
    may_answer = threading.Event()

    def login(_: str) -> Login:
        assert may_answer.wait(TIMEOUT)
        return "app", FIRST

    async def run() -> None:
        async with quorlock.Client(servers.urls, credentials=login, connect_timeout=60) as client:
            acquiring = asyncio.create_task(client.lock("r", wait=60).acquire_async())
            await asyncio.sleep(0.05)
            assert not acquiring.done()
            may_answer.set()
            await (await acquiring).release_async()

    asyncio.run(run())


class VaultError(Exception):
    pass


def fails(_: str) -> Login:
    raise VaultError(FIRST)


async def fails_later(_: str) -> Login:
    await asyncio.sleep(0)
    raise VaultError(FIRST)


def exits(_: str) -> Login:
    sys.exit(FIRST)


SHAPE = "must return a tuple (user or None, password) of str, not this "


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fails, "failed: VaultError"),
        (fails_later, "failed: VaultError"),
        (exits, "failed: SystemExit"),
        (lambda _: FIRST, SHAPE + "str"),
        (lambda _: None, SHAPE + "NoneType"),
        (lambda _: (FIRST,), SHAPE + "tuple"),
        (lambda _: ("app", FIRST.encode()), SHAPE + "tuple"),
        (lambda _: (1, FIRST), SHAPE + "tuple"),
        (lambda _: ("app", "\ud800"), SHAPE + "tuple"),
        (lambda: FIRST, "failed: TypeError"),
    ],
)
def test_a_failure_is_named_without_secrets(
    servers: Servers, function: Callable[[str], Any], expected: str
) -> None:
    with (
        quorlock.Client(servers.urls, credentials=function, node_timeout=5) as client,
        pytest.raises(quorlock.QuorumError) as caught,
    ):
        client.lock("r", wait=0).acquire()
    for node in caught.value.nodes:
        assert node.outcome == "unreachable"
        assert expected in node.detail
    assert FIRST not in str(caught.value) + repr(caught.value)


def test_a_function_that_hangs_is_named_and_delays_only_its_node(servers: Servers) -> None:
    may_end = threading.Event()

    def login(address: str) -> Login:
        if address == servers.urls[0]:
            may_end.wait(TIMEOUT)
        return "app", FIRST

    options: Any = {"credentials": login, "connect_timeout": 2}
    with quorlock.Client(servers.urls, **options) as client:
        assert can_lock(client)

        assert "returned nothing within 2 s" in str(client.doctor())
        may_end.set()
        wait_until(lambda: client.doctor().nodes[0].reachable)


@pytest.mark.parametrize("given", [("app", FIRST), FIRST, 1, True, {}])
def test_what_is_no_function_is_refused_at_once(given: Any) -> None:
    with pytest.raises(quorlock.ConfigError, match="credentials must be a function") as caught:
        quorlock.Client(["redis://localhost"], credentials=given)
    assert FIRST not in str(caught.value)


def test_none_is_no_function() -> None:
    with quorlock.Client(["memory://credentials"], credentials=None) as client:
        assert can_lock(client)


PROGRAM = """
import os, sys, time, quorlock

def login(address):
    {work}
    return "app", os.environ["PASSWORD"]

client = quorlock.Client(credentials=login, connect_timeout=60, node_timeout=5)
"""


def run(servers: Servers, work: str, program: str) -> subprocess.CompletedProcess[str]:
    environment = {"QUORLOCK_NODES": ",".join(servers.urls), "PASSWORD": FIRST}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work) + program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


FORK = """
with client.lock("r"):
    pass
pid = os.fork()
with client.lock("child" if pid == 0 else "parent"):
    pass
if pid == 0:
    os._exit(0)
_, status = os.waitpid(pid, 0)
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_asks_for_its_own_connections(servers: Servers) -> None:
    done = run(servers, "pass", FORK)
    assert (done.returncode, done.stderr) == (0, "")


EXIT = """
import threading
threading.Thread(target=client.lock("r").acquire, daemon=True).start()
while "quorlock-credentials" not in [thread.name for thread in threading.enumerate()]:
    time.sleep(0.01)
time.sleep(0.05)
"""


@pytest.mark.parametrize("work", ["time.sleep(600)", "while True: pass", "raise ValueError"])
def test_a_process_ends_while_credentials_are_asked_for(servers: Servers, work: str) -> None:
    began = time.monotonic()
    done = run(servers, work, EXIT)
    assert done.returncode == 0, done.stderr
    assert not re.search("Fatal|panicked|Traceback", done.stderr), done.stderr
    assert time.monotonic() - began < TIMEOUT / 2


def test_greenlets_run_while_credentials_are_asked_for(servers: Servers) -> None:
    pytest.importorskip("gevent")
    patch = "from gevent import monkey; monkey.patch_all()\n"
    program = """
with client.lock("r"):
    print("held")
"""
    environment = {"QUORLOCK_NODES": ",".join(servers.urls), "PASSWORD": FIRST}
    done = subprocess.run(
        [sys.executable, "-c", patch + PROGRAM.format(work="time.sleep(0.01)") + program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr


def types(function: Callable[[str], Awaitable[Login]]) -> quorlock.Client:
    """Checks the type of the option: mypy reads this."""
    return quorlock.Client(credentials=function)
