"""Mistakes in calls: each is named with what was given and what is right. Units and long names."""

from __future__ import annotations

import asyncio
import datetime
import logging
import math
import os
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
from rows import load

import quorlock

CALLS = [row for row in load("arguments.json") if "python" in row]


class Redis:
    """Like the client of redis-py: it can be indexed, which sends a request."""

    def __getitem__(self, index: int) -> str:
        raise AssertionError("a request was sent")


def call(code: str) -> object:
    """Runs the code of a call, as a user would write it."""
    modules = {module.__name__: module for module in (datetime, math, os, threading)}
    # Closing the client releases the lease of a call that fails after its acquire. Otherwise, the
    # lease would be dropped while it is valid, and a later test would show the warning.
    with quorlock.Client(["memory://arguments"]) as client:
        return eval(code, {**modules, "client": client, "Client": quorlock.Client, "Redis": Redis})


@pytest.mark.parametrize(
    "row", [row for row in CALLS if "warns" not in row], ids=lambda row: row["mistake"]
)
def test_a_mistake_in_a_call_has_the_message_in_the_table(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUORLOCK_NODES", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if row["says"] is None:
            call(row["python"])
            return
        with pytest.raises(quorlock.ConfigError) as caught:
            call(row["python"])
    assert str(caught.value) == row["says"]
    for secret in row.get("never", []):
        assert secret not in repr(caught.value)


@pytest.mark.parametrize(
    "row", [row for row in CALLS if "warns" in row], ids=lambda row: row["mistake"]
)
def test_a_ttl_in_the_wrong_unit_is_warned_about_once_at_the_line_of_the_user(
    row: dict[str, Any],
) -> None:
    program = f"""
import warnings
from quorlock import Client

client = Client(["memory://a"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {row["python"]}  # Line 8 of this program.
    client.lock("y", ttl=20_000)
[warning] = [warning for warning in caught if warning.category is RuntimeWarning]
assert (warning.filename, warning.lineno) == ("<string>", 8), (warning.filename, warning.lineno)
print(warning.message)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == row["warns"] + "\n", done.stderr


def test_nodes_may_raise_while_they_are_iterated() -> None:
    def urls() -> Any:
        yield "memory://a"
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        quorlock.Client(urls())


def test_a_list_may_contain_itself() -> None:
    nodes: list[Any] = []
    nodes.append(nodes)
    with pytest.raises(quorlock.ConfigError, match="not a list"):
        quorlock.Client(nodes)
    options: Any = {"retry_delay": nodes}
    with pytest.raises(quorlock.ConfigError, match=r"not \(a list\)"):
        quorlock.Client(["memory://a"], **options)


def test_long_names_are_shortened_in_all_texts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "quorlock")
    name = "x" * 8192
    with quorlock.Client(["memory://long"]) as client:
        lock = client.lock(name, wait=0)
        lease = lock.acquire()
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            lock.acquire()
        assert caught.value.resources == (name,)
        lease.release()
        with pytest.raises(quorlock.LeaseLostError) as lost:
            lease.check()
        with pytest.raises(quorlock.ConfigError) as twice:
            client.lock(name, name)
        with pytest.raises(quorlock.ConfigError) as reserved:
            client.lock("{x}" + name[:8000] + ":fence")
        texts = [repr(lock), repr(lease), str(caught.value), str(lost.value), str(twice.value)]
        for text in [*texts, str(reserved.value)]:
            assert "x" * 90 in text
            assert "x" * 101 not in text
    for record in caplog.records:
        assert "x" * 101 not in f"{record.getMessage()} {vars(record)}"


def test_async_methods_without_asyncio_or_trio_say_that_they_need_one() -> None:
    """Drives a coroutine as curio does."""
    with quorlock.Client(["memory://no-loop"]) as client:
        lock = client.lock("r")
        lease = lock.acquire()
        for coroutine in (
            lock.acquire_async(),
            lock.__aenter__(),
            lock.locked_async(),
            lease.extend_async(),
            client.doctor_async(),
        ):
            with pytest.raises(RuntimeError, match=r"need asyncio or trio.*curio.*thread"):
                coroutine.send(None)
        lease.release()
        # In an event loop, they work.
        assert not asyncio.run(lock.locked_async())
