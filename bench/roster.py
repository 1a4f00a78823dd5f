"""All contenders: quorlock in each language and form, the floors, and the installed peers."""

from __future__ import annotations

import sys
from pathlib import Path

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
from parameters import PROGRAMS, ROOT


def own(root: Path, python: str, suffix: str = "") -> list[Contender]:
    """Returns the forms of quorlock in a checkout, whose packages this Python has. The suffix
    follows each name."""
    programs, clients = root / "target" / "release", root / "bench" / "clients"
    asyncio = [python, f"{clients}/python_async.py"]
    return [
        Contender(name + suffix, "quorlock", language, form, command)
        for name, language, form, command in [
            (RUST, "Rust", "sync", [f"{programs}/rust-sync"]),
            (RUST_ASYNC, "Rust", "async", [f"{programs}/rust-async"]),
            (PYTHON, "Python", "sync", [python, f"{clients}/python_sync.py"]),
            (ASYNCIO, "Python", "async", asyncio),
            (UVLOOP, "Python", "async", [*asyncio, "--uvloop"]),
            (NODE, "Node.js", "async", ["node", f"{clients}/node.js"]),
        ]
    ]


OWN = own(ROOT, sys.executable)


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
