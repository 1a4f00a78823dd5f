"""All contenders: quorlock in each language and form, the floors, and the installed peers."""

from __future__ import annotations

import sys

import peers
from commands import PLAIN, Commands, record
from contender import Contender
from figures import (
    ASYNCIO,
    FLOOR,
    FLOOR_ALL,
    FLOOR_PLAIN,
    NODE,
    PYTHON,
    RUST,
    RUST_ASYNC,
    UVLOOP,
)
from parameters import HERE, PROGRAMS

_CLIENTS = HERE / "clients"

OWN = [
    Contender(RUST, "quorlock", "Rust", "sync", [f"{PROGRAMS}/rust-sync"]),
    Contender(RUST_ASYNC, "quorlock", "Rust", "async", [f"{PROGRAMS}/rust-async"]),
    Contender(
        PYTHON,
        "quorlock",
        "Python",
        "sync",
        [sys.executable, f"{_CLIENTS}/python_sync.py"],
    ),
    Contender(
        ASYNCIO,
        "quorlock",
        "Python",
        "async",
        [sys.executable, f"{_CLIENTS}/python_async.py"],
    ),
    Contender(
        UVLOOP,
        "quorlock",
        "Python",
        "async",
        [sys.executable, f"{_CLIENTS}/python_async.py", "--uvloop"],
    ),
    Contender(NODE, "quorlock", "Node.js", "async", ["node", f"{_CLIENTS}/node.js"]),
]


def contenders() -> tuple[list[Contender], dict[str, str]]:
    """Installs missing peers. Returns the contenders that can run, and the reasons why others
    cannot."""
    present, missing = peers.available()
    others = [
        Contender(
            peer.name,
            "peer",
            peer.language,
            peer.form,
            peer.command,
            peer.environment,
            needs_one_node=peer.nodes == "one",
            concurrency=peer.concurrency,
        )
        for peer in present
    ]
    return floors() + OWN + others, missing


def floors() -> list[Contender]:
    """Returns the contenders of raw sockets."""
    recorded = record()
    return [
        _floor(FLOOR, recorded),
        _floor(FLOOR_ALL, recorded, "--all"),
        _floor(FLOOR_PLAIN, PLAIN),
    ]


def _floor(name: str, commands: Commands, *flags: str) -> Contender:
    command = [f"{PROGRAMS}/floor", name, commands.text(), *flags]
    return Contender(name, "floor", "Rust", "sync", command)
