"""Installs the peers with the package managers of their languages, under .cache/bench."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from interop import installing
from interop.installing import Ecosystem

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "bench"


def _python(directory: str, modules: str) -> Ecosystem:
    """Returns an ecosystem with its own virtual environment. The last step imports the modules."""
    venv = CACHE / directory / "venv"
    requirements = ["--no-deps", "--requirement=requirements.txt"]
    return replace(
        installing.PYTHON,
        directory=directory,
        steps=[
            [sys.executable, "-m", "venv", "--clear", venv],
            [venv / "bin" / "pip", "install", *requirements],
            [venv / "bin" / "python", "-c", f"import {modules}"],
        ],
        program=[venv / "bin" / "python", HERE / "python" / "peer.py"],
        home=HERE,
        cache=CACHE,
    )


PYTHON_VENV = CACHE / "python/with-redis-8" / "venv"
PYTHON = _python("python/with-redis-8", "pottery, redis_lock, redlock")
REDLOCK_NG = _python("python/with-redis-5", "redlock")
AIOREDLOCK = _python("python/with-aioredis", "aioredlock")

NODE = installing.node(HERE, CACHE, HERE / "node" / "peer.cjs")

RUST = replace(
    installing.RUST,
    steps=[["cargo", "build", "--quiet", "--locked", "--release", "--target-dir=target"]],
    program=[CACHE / "rust" / "target" / "release" / "peer"],
    home=HERE,
    cache=CACHE,
)

GO = replace(
    installing.GO,
    inputs=["go.mod", "go.sum", "main.go", "serve.go"],
    program=[CACHE / "go" / "peer"],
    home=HERE,
    cache=CACHE,
)

_TARGET = CACHE / "java" / "target"

JAVA = Ecosystem(
    directory="java",
    inputs=[
        "pom.xml",
        *(f"src/main/java/{name}.java" for name in ("Requests", "Peer", "ReadWrite", "Permits")),
    ],
    steps=[["mvn", "--quiet", "--batch-mode", "compile", "dependency:copy-dependencies"]],
    program=["java", "-cp", f"{_TARGET / 'classes'}:{_TARGET / 'dependency'}/*", "Peer"],
    home=HERE,
    cache=CACHE,
)
