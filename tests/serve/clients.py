"""Clients of `quorlock serve`: the Redis libraries of several languages.

Each has one small program, a driver: `PROGRAM SOCKET`. It has one connection to the daemon. It
reads requests from stdin, one on each line, with tabs between the words, and answers each with one
line of JSON on stdout: the reply, or {"error": text}. It exits at the end of stdin.

The libraries are installed in .cache/serve, with the versions pinned here. Predis and redis-rb are
not: their versions are those of the Debian or Ubuntu release that runs the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop import installing
from interop.installing import Ecosystem
from waiting import TIMEOUT

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "serve"

GO = replace(
    installing.GO,
    inputs=["go.mod", "go.sum", "driver/main.go", "chaos/main.go"],
    steps=[["go", "build", "-o", "bin/", "./..."]],
    program=[CACHE / "go" / "bin" / "driver"],
    home=HERE,
    cache=CACHE,
)
_CLASSES = f"{CACHE / 'java/target/classes'}:{CACHE / 'java/target/dependency'}/*"
JAVA = Ecosystem(
    directory="java",
    inputs=["pom.xml", "src/main/java/Driver.java", "src/main/java/Chaos.java"],
    steps=[["mvn", "--quiet", "--batch-mode", "compile", "dependency:copy-dependencies"]],
    program=["java", "-XX:TieredStopAtLevel=1", "-cp", _CLASSES, "Driver"],
    home=HERE,
    cache=CACHE,
)
_VENV = CACHE / "python" / "venv"
PYTHON = replace(
    installing.PYTHON,
    steps=[
        [sys.executable, "-m", "venv", "--clear", _VENV],
        [_VENV / "bin" / "pip", "install", "--no-deps", "--requirement=requirements.txt"],
    ],
    program=[_VENV / "bin" / "python", HERE / "python" / "driver.py"],
    home=HERE,
    cache=CACHE,
)
NODE = installing.node(HERE, CACHE, HERE / "node" / "driver.cjs")

_SOURCES = "hiredis-*/vendor/hiredis"
C = Ecosystem(
    directory="c",
    inputs=["requirements.txt", "driver.c"],
    steps=[
        ["cc", "--version"],
        ["sh", "-c", "rm -rf hiredis-*"],
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:"),
            "--requirement=requirements.txt",
        ],
        ["sh", "-c", "tar -xzf hiredis-*.tar.gz"],
        [
            *("sh", "-c"),
            f"cc -o driver -I {_SOURCES} driver.c $(ls {_SOURCES}/*.c | grep -v -e test -e ssl)",
        ],
    ],
    program=[CACHE / "c" / "driver"],
    environment={"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1", "PIP_RETRIES": "1"},
    home=HERE,
    cache=CACHE,
)


def _debian(directory: str, packages: Sequence[str], driver: str) -> Ecosystem:
    """Returns an ecosystem of Debian packages. They need not be installed, nor is root needed."""
    return Ecosystem(
        directory=directory,
        inputs=["../debian.sh"],
        steps=[["apt-get", "--version"], ["sh", HERE / "debian.sh", *packages]],
        program=[
            *("sh", HERE / "unpacked.sh", CACHE / directory / "root", directory),
            HERE / directory / driver,
        ],
        home=HERE,
        cache=CACHE,
    )


PHP = _debian("php", ["php-cli", "php-predis"], "driver.php")
RUBY = _debian("ruby", ["ruby", "ruby-redis"], "driver.rb")
_MONO = ["mono-mcs", "mono-runtime", "libmono-system4.0-cil", "libmono-system-core4.0-cil"]
MONO = replace(
    _debian("csharp", _MONO, ""),
    inputs=["../debian.sh", "mono.sh"],
    program=["sh", CACHE / "csharp" / "mono.sh", CACHE / "csharp" / "root"],
)
"""Runs .NET programs."""


@dataclass(frozen=True)
class Library:
    """A Redis library. `str` returns its name."""

    name: str
    language: str
    ecosystem: Ecosystem | None
    """How it is installed; None for `redis-cli`, which is its own driver."""

    def __str__(self) -> str:
        return self.name

    @property
    def missing(self) -> str | None:
        """The tool that this machine lacks to install it, or to run it; None if it has the tool."""
        tool = str(self.ecosystem.steps[0][0]) if self.ecosystem else "redis-cli"
        return tool if shutil.which(tool) is None else None

    def install(self) -> None:
        """Installs the library unless it is installed. Raises NotInstalledError."""
        if self.ecosystem:
            self.ecosystem.install()


LIBRARIES = [
    Library("redis-cli", "shell", None),
    Library("go-redis", "Go", GO),
    Library("Jedis", "Java", JAVA),
    Library("redis-py", "Python", PYTHON),
    Library("ioredis", "Node.js", NODE),
    Library("Predis", "PHP", PHP),
    Library("redis-rb", "Ruby", RUBY),
    Library("hiredis", "C", C),
]
TOOLS = [*LIBRARIES, Library("Mono", "C#", MONO)]
"""With what runs C#, which locks without a library: StackExchange.Redis shares connections."""


class RefusedError(Exception):
    """The daemon has answered with an error, or the connection has ended."""


def _quote(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


class Client:
    """A process with one connection to the daemon. It is killed at the end of `with`."""

    def __init__(self, library: Library, path: Path) -> None:
        self._is_plain = library.ecosystem is None
        program = ["redis-cli", "--json", "-s"]
        environment = dict(os.environ)
        if library.ecosystem:
            program = [*map(str, library.ecosystem.program)]
            environment |= library.ecosystem.environment
        self._process = subprocess.Popen(
            [*program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )

    def send(self, *words: str | int) -> None:
        """Sends a request, and does not wait for its reply."""
        assert self._process.stdin
        texts = [str(word) for word in words]
        line = " ".join(map(_quote, texts)) if self._is_plain else "\t".join(texts)
        self._process.stdin.write(line + "\n")

    def reply(self) -> Any:
        """Returns the next reply. Raises RefusedError for an error."""
        assert self._process.stdout
        # Kill a process that hangs, so that the test fails.
        limit = threading.Timer(TIMEOUT, self._process.kill)
        limit.start()
        try:
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        assert line, "the client exited without a reply"
        if self._is_plain and line.startswith("error:"):
            raise RefusedError(json.loads(line.removeprefix("error:")))
        reply = json.loads(line)
        if isinstance(reply, dict):
            raise RefusedError(reply["error"])
        return reply

    def ask(self, *words: str | int) -> Any:
        self.send(*words)
        return self.reply()

    def error(self, *words: str | int) -> str:
        """Sends a request that must fail, and returns the error without the code ERR, which
        redis-py removes."""
        try:
            reply = self.ask(*words)
        except RefusedError as error:
            return str(error).removeprefix("ERR ")
        raise AssertionError(reply)

    def kill(self) -> None:
        """Kills the process, as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()
