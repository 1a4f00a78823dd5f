"""All contenders: quorlock in each language and form, the floors, and the installed peers."""

from __future__ import annotations

import sys
from functools import cache

from bench import peers
from bench.commands import PLAIN, Commands, check, record
from bench.contender import Contender, Form
from bench.names import (
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
from bench.settings import HERE, PROGRAMS

_CLIENTS = HERE / "clients"


def rust(name: str, form: Form, program: str, *arguments: str) -> Contender:
    """Returns a contender that is a program of `bench/rust`."""
    return Contender(name, "quorlock", "Rust", form, [f"{PROGRAMS}/{program}", *arguments])


def python(name: str, form: Form, *command: str) -> Contender:
    """Returns a contender that is a program of `bench/clients`."""
    program, *arguments = command
    return Contender(
        name, "quorlock", "Python", form, [sys.executable, f"{_CLIENTS}/{program}", *arguments]
    )


OWN = {
    each.name: each
    for each in [
        rust(RUST, "sync", "rust-sync"),
        rust(RUST_ASYNC, "async", "rust-async"),
        python(PYTHON, "sync", "python_sync.py"),
        python(ASYNCIO, "async", "python_async.py"),
        python(UVLOOP, "async", "python_async.py", "--uvloop"),
        Contender(NODE, "quorlock", "Node.js", "async", ["node", f"{_CLIENTS}/node.js"]),
    ]
}


@cache
def reasons() -> dict[str, str]:
    """Installs missing peers. Returns the reasons why some of them cannot run, by their names."""
    why = peers.install(library.ecosystem for library in peers.LIBRARIES)
    return {
        library.name: why[library.ecosystem.directory]
        for library in peers.LIBRARIES
        if library.ecosystem.directory in why
    }


@cache
def present() -> list[Contender]:
    """Returns the contenders that can run. Exits if one does not send what it must."""
    for name, reason in reasons().items():
        print(f"without {name}: {reason}", file=sys.stderr)
    installed = [each for each in peers.LIBRARIES if each.name not in reasons()]
    contenders = [*floors(), *OWN.values(), *(library.contender() for library in installed)]
    check(contenders)
    return contenders


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
