"""A resource can have any name. `no_two_names_share_a_key` in `core/src/wire/keys.rs` tests which
keys it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodes import keys
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

NAMES: list[str] = json.loads(
    (Path(__file__).resolve().parent.parent / "vectors" / "names.json").read_text()
)
LONG = 600.0
"""A time, in seconds, longer than any test. With it as the retry delay, a waiter gets the lock only
if it is notified."""


def test_any_name_is_locked_under_its_own_key_and_its_waiter_is_notified(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)

    def connect() -> quorlock.Client:
        return quorlock.Client(servers.urls, ttl=LONG, wait=TIMEOUT, retry_delay=(LONG, LONG))

    with connect() as client, connect() as other, ThreadPoolExecutor(1) as pool:
        for name in [*NAMES, "x" * 8192]:
            lease = client.lock(name).acquire()
            assert lease.resources == (name,)
            assert servers[0].command("GET", name) == lease.token
            waiting = pool.submit(other.lock(name).acquire)
            wait_until(lambda: client.status(name).waiters == 1)  # noqa: B023
            assert lease.release()
            assert waiting.result(TIMEOUT).release()
            wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("name", ["a\ud800", "\udfff", "", b"a", 7, None, ["a"]], ids=ascii)
def test_a_name_that_is_not_unicode_text_is_refused(name: str) -> None:
    with quorlock.Client(["memory://names"]) as client:
        with pytest.raises(quorlock.ConfigError, match="the resource must be a string"):
            client.lock(name)


def test_a_prefix_that_is_not_unicode_text_is_refused() -> None:
    """Otherwise, the conversion to UTF-8 could make two different prefixes equal."""
    with pytest.raises(quorlock.ConfigError, match="key_prefix must be a string of Unicode"):
        quorlock.Client(["memory://a"], key_prefix="a\ud800")
