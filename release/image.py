"""Writes the root file system of the image, which the Containerfile beside this script adds.

    python release/image.py ARCHIVE ROOT.tar [--certificates FILE]

ARCHIVE is the archive of the command for Linux with musl, from command.py. ROOT.tar gets the
program, its licences and its bill of materials, the certificates of public authorities, and
directories for the socket and for temporary files. All of it belongs to root, except the directory
of the socket.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

USER = 65532
"""The user and the group of the image."""

PROGRAM = "usr/local/bin/quorlock"
DOCUMENTS = "usr/share/doc/quorlock"
DIRECTORIES = {"run/quorlock": (USER, 0o770), "tmp": (0, 0o1777)}
"""The owners and the modes of the directories in which the program creates files."""

CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
"""Where the program looks for authorities, and where Debian and Ubuntu have theirs."""

KEPT = ["LICENSE", "LICENSE-THIRD-PARTY", "quorlock.cyclonedx.json"]
"""The files of the archive that the image contains beside the program."""


def files(archive: tarfile.TarFile, certificates: Path) -> dict[str, tuple[bytes, int]]:
    """Returns the content and the mode of each file in the image, by its path."""
    by_name = {Path(member.name).name: member for member in archive if member.isfile()}

    def read(name: str) -> bytes:
        file = archive.extractfile(by_name[name])
        assert file
        return file.read()

    return {
        PROGRAM: (read("quorlock"), 0o755),
        **{f"{DOCUMENTS}/{name}": (read(name), 0o644) for name in KEPT},
        CERTIFICATES: (certificates.read_bytes(), 0o644),
    }


def directories(paths: Iterable[str]) -> Iterator[tarfile.TarInfo]:
    """Yields the directories above these paths, and those of DIRECTORIES, parents first."""
    above = {str(parent) for path in [*paths, *DIRECTORIES] for parent in Path(path).parents}
    for name in sorted((above | DIRECTORIES.keys()) - {"."}):
        member = tarfile.TarInfo(name)
        member.type = tarfile.DIRTYPE
        owner, member.mode = DIRECTORIES.get(name, (0, 0o755))
        member.uid = member.gid = owner
        yield member


def write(archive: Path, out: Path, certificates: Path) -> None:
    """Writes the root file system."""
    with tarfile.open(archive) as packed:
        content = files(packed, certificates)
    with tarfile.open(out, "w") as root:
        for directory in directories(content):
            root.addfile(directory)
        for name, (data, mode) in content.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            root.addfile(member, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("archive", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--certificates", type=Path, default=Path("/") / CERTIFICATES)
    arguments = parser.parse_args()
    write(arguments.archive, arguments.out, arguments.certificates)


if __name__ == "__main__":
    main()
