"""Puts a slow network in front of some nodes, with `bench/rust/src/bin/delay.rs`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack

from proxy import redis_url

from bench.group import Group
from bench.placing import among_servers
from bench.settings import PROGRAMS


def slow_urls(
    stack: ExitStack, group: Group, which: Sequence[int], milliseconds: float
) -> Sequence[str]:
    """Returns the URLs of the nodes. Replies of the nodes in `which` are delayed until `stack` is
    closed."""
    if not which:
        return group.servers.urls
    ports = [str(group.servers[index].port) for index in which]
    with among_servers():  # keep the relay off the CPUs of the contenders
        process = subprocess.Popen(
            [PROGRAMS / "delay", str(milliseconds), *ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    stack.enter_context(process)  # closes its stdin, which makes it exit
    assert process.stdout
    urls = list(group.servers.urls)
    for index, port in zip(which, json.loads(process.stdout.readline()), strict=True):
        urls[index] = redis_url(port)
    return urls
