"""Runs the image of the command as a container runtime would, without one: as the first process of
its own namespaces, in a read-only root, and as the user of the image."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packages.sandboxes import ROOT

CONTAINERFILE = ROOT / "release" / "Containerfile"

_UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
# Mounts what a runtime mounts: /proc, /dev and the volume. Then it replaces itself by the command.
_START = """
set -e
root=$1 volume=$2 place=$3 user=$4
shift 4
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$volume" "$root$place"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --groups= --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Instructions:
    """What the Containerfile says about a container."""

    user: str
    volume: str
    environment: Mapping[str, str]
    entry_point: Sequence[str]
    command: Sequence[str]

    @classmethod
    def read(cls) -> Self:
        text = CONTAINERFILE.read_text()

        def argument(name: str) -> str:
            (found,) = re.findall(rf"^{name} (.*)$", text, re.MULTILINE)
            return str(found)

        return cls(
            user=argument("USER"),
            volume=argument("VOLUME"),
            environment=dict(
                pair.split("=", 1) for pair in re.findall(r"^ENV (\S+)$", text, re.MULTILINE)
            ),
            entry_point=json.loads(argument("ENTRYPOINT")),
            command=json.loads(argument("CMD")),
        )


class Image:
    """The unpacked root file system of the image, and what its Containerfile says."""

    def __init__(self, root: Path, packed: Path) -> None:
        self.root = root
        self.instructions = Instructions.read()
        with tarfile.open(packed) as archive:
            archive.extractall(root, numeric_owner=True, filter="fully_trusted")
        root.chmod(0o755)
        for name in ("proc", "dev"):
            (root / name).mkdir()

    def add_libraries(self) -> None:
        """Adds the libraries of a dynamically linked program, which a published one has not."""
        program = self.root / self.instructions.entry_point[0].lstrip("/")
        listed = subprocess.check_output(["ldd", program], text=True)
        for library in re.findall(r"(/\S+) \(0x", listed):
            target = self.root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)

    def start(
        self, command: Sequence[str], volume: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Starts a command in a new container, with this directory as its volume."""
        instructions = self.instructions
        arguments = [str(self.root), str(volume), instructions.volume, instructions.user]
        return subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _START, "sh", *arguments, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # `sh` also needs the directories of the programs that it runs.
            env={**instructions.environment, "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
            | dict(environment),
            text=True,
        )
