"""All contenders: quorlock in each language and form, the floors, and the installed peers."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from bench import peers
from bench.commands import PLAIN, Commands, check, record
from bench.contender import Contender, Form, Language
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
from bench.settings import HERE, PROGRAMS, ROOT

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


def own(root: Path, python: str, suffix: str = "") -> list[Contender]:
    """Returns the forms of quorlock in a checkout, whose packages this Python has. The suffix
    follows each name."""
    programs, clients = root / PROGRAMS.relative_to(ROOT), root / _CLIENTS.relative_to(ROOT)
    asyncio = [python, f"{clients}/python_async.py"]
    forms: list[tuple[str, Language, Form, list[str]]] = [
        (RUST, "Rust", "sync", [f"{programs}/rust-sync"]),
        (RUST_ASYNC, "Rust", "async", [f"{programs}/rust-async"]),
        (PYTHON, "Python", "sync", [python, f"{clients}/python_sync.py"]),
        (ASYNCIO, "Python", "async", asyncio),
        (UVLOOP, "Python", "async", [*asyncio, "--uvloop"]),
        (NODE, "Node.js", "async", ["node", f"{clients}/node.js"]),
    ]
    return [
        Contender(name + suffix, "quorlock", language, form, command)
        for name, language, form, command in forms
    ]


OWN = {each.name: each for each in own(ROOT, sys.executable)}


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
    """Returns the contenders that can run. Exits if a floor does not send what it must."""
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
