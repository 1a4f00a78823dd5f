"""Secrets in URLs never appear in errors, tracebacks, pickles, `repr`, logs or reports."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from servers import Servers
from waiting import TIMEOUT

import quorlock

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
MARK = "MARK"
PASSWORD = f"{MARK}/{MARK}@{MARK}?{MARK}#{MARK}%{MARK}:{MARK}&{MARK}"


def urls() -> Iterator[str]:
    """Yields URLs with secrets, most of them malformed."""
    parts = json.loads((VECTORS / "secrets.json").read_text())
    logins = [*parts["logins"], ""]
    for scheme, login, rest in product(parts["schemes"], logins, parts["places"]):
        if MARK in login + rest:
            yield f"{scheme}://{login}{rest}"


def is_hidden(*texts: object) -> bool:
    """Returns whether no text shows a secret. Ignores case, because host names are lowercased."""
    return not any(MARK in str(text).upper() for text in texts)


def check(error: quorlock.QuorlockError) -> None:
    """Asserts that no form of this error shows a secret."""
    formatted = "".join(traceback.format_exception(error))
    assert is_hidden(str(error), repr(error), error.args, error.nodes, vars(error), formatted)
    pickled = pickle.dumps(error)
    assert MARK.encode() not in pickled.upper()
    assert str(pickle.loads(pickled)) == str(error)


def test_secrets_of_urls_are_hidden_in_errors_and_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    good = bad = 0
    for url in urls():
        try:
            client = quorlock.Client([url])
        except quorlock.ConfigError as error:
            check(error)
            bad += 1
        else:
            assert is_hidden(repr(client), client.stats(), client.lock("r"))
            good += 1
    assert good > 30
    assert bad > 300
    monkeypatch.setenv("QUORLOCK_NODES", f"redis://:{MARK}@127.0.0.1:port,http://:{MARK}@host")
    with pytest.raises(quorlock.ConfigError) as caught:
        quorlock.Client()
    check(caught.value)


def check_outage(urls: list[str]) -> None:
    """Asserts that errors and reports about unusable nodes show no secret."""
    with quorlock.Client(urls, connect_timeout=0.5) as client:
        lock = client.lock("r", wait=0)
        for operation in (lock.acquire, lock.locked):
            with pytest.raises(quorlock.QuorumError) as caught:
                operation()
            check(caught.value)
        diagnosis = client.doctor()
        assert is_hidden(repr(client), repr(lock), client.stats(), diagnosis, repr(diagnosis))


@pytest.mark.parametrize("user", ["", MARK])
def test_unusable_nodes_show_no_secrets(
    user: str, start_servers: Callable[..., Servers], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.NOTSET)
    servers = start_servers(2, password="right")
    login = f"{user}:{quote(PASSWORD, safe='')}"
    check_outage([f"redis://{login}@127.0.0.1:{server.port}" for server in servers])
    unusable = ["127.0.0.1:1", f"127.0.0.1:{servers[0].port}/9999"]
    check_outage([f"redis://{login}@{address}" for address in unusable])
    check_outage([f"unix:///nowhere/redis.sock?user={user}&pass={quote(PASSWORD, safe='')}"])
    assert is_hidden(caplog.text, [vars(record) for record in caplog.records])


def test_working_nodes_show_no_secrets(
    start_servers: Callable[..., Servers], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.NOTSET)
    servers = start_servers(3, password=PASSWORD)
    with quorlock.Client(servers.urls, wait=TIMEOUT) as client:
        with client.lock("r") as lease:
            with pytest.raises(quorlock.LockTimeoutError) as caught:
                client.lock("r", wait=0).acquire()
            check(caught.value)
            assert lease.token[:9] not in repr(lease), "the token is a secret: it can end the lease"
            servers[0].kill()
            lease.extend()
            report = client.doctor()
            assert is_hidden(repr(client), repr(lease), client.stats(), report, repr(report))
        lease = client.lock("r").acquire()
    with pytest.raises(quorlock.LeaseLostError) as lost:
        lease.check()
    check(lost.value)
    twice = [servers.urls[1], servers.urls[1].replace("127.0.0.1", "localhost")]
    with quorlock.Client(twice) as client, pytest.raises(quorlock.ConfigError) as same:
        client.lock("r", wait=TIMEOUT).acquire()
    check(same.value)
    assert is_hidden(caplog.text, [vars(record) for record in caplog.records])


@pytest.mark.parametrize("disabled", ["HELLO", "EVALSHA"])
def test_commands_that_a_server_quotes_show_no_secrets(
    start_servers: Callable[..., Servers], caplog: pytest.LogCaptureFixture, disabled: str
) -> None:
    caplog.set_level(logging.NOTSET)
    servers = start_servers(1, password=PASSWORD, args=["--rename-command", disabled, ""])
    holder = f"web-{MARK}"  # a part of the token
    with quorlock.Client(servers.urls, wait=0, holder=holder) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r").acquire()
        [node] = caught.value.nodes
        assert node.outcome == "refused"
        assert f"unknown command '{disabled}'" in node.detail
        assert ("use Redis 6.2 or later" in node.detail) == (disabled == "HELLO")
        check(caught.value)
        report = client.doctor()
        assert is_hidden(report, repr(report), client.stats(), caplog.text)


PROGRAM = """
import sys, quorlock
url = sys.stdin.read()
print(quorlock.Client([url]).doctor())
quorlock.Client([url]).lock("r", wait=0).acquire()
"""


def test_a_failing_program_prints_no_secrets(start_servers: Callable[..., Servers]) -> None:
    [server] = start_servers(1, password="right")
    for address in (f"127.0.0.1:{server.port}", "127.0.0.1:1", "127.0.0.1:port"):
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", PROGRAM],
            input=f"redis://{MARK}:{quote(PASSWORD, safe='')}@{address}",
            env={**os.environ, "RUST_BACKTRACE": "full", "RUST_LOG": "trace"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "quorlock" in done.stderr
        assert is_hidden(done.stdout, done.stderr)
