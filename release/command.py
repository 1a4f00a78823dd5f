"""Builds the archive of the `quorlock` command for one platform.

    python release/command.py PLATFORM OUT [--program FILE]

PLATFORM is a name in platforms.json: a system without a libc of its own, or Linux with musl, for
which the program is linked statically and runs on every Linux. OUT gets
quorlock-VERSION-TARGET.tar.gz, or .zip for Windows, with the program, its manual pages, completion
scripts, licences and bill of materials. The program must run on this machine, because it prints its
own pages. --program takes a program that is compiled already.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import licenses
import npm
import sbom
import version

ROOT = Path(__file__).resolve().parent.parent

COMPLETIONS = {
    "bash": "quorlock.bash",
    "elvish": "quorlock.elv",
    "fish": "quorlock.fish",
    "powershell": "_quorlock.ps1",
    "zsh": "_quorlock",
}
"""The shells, and the names that they give to the file of a program."""

PROGRAM_MODE = 0o755
FILE_MODE = 0o644


def platforms() -> list[str]:
    """Returns the platforms for which the command is published."""
    return [
        name
        for name, fields in npm.platforms().items()
        if fields.get("libc") != "glibc" and fields["cpu"] != "arm"
    ]


def stem(platform: str) -> str:
    """Returns the name of the archive's only directory, and of the archive without its suffix."""
    return f"quorlock-{version.version()}-{npm.platforms()[platform]['target']}"


def program_name(platform: str) -> str:
    return "quorlock.exe" if is_windows(platform) else "quorlock"


def archive_name(platform: str) -> str:
    return stem(platform) + (".zip" if is_windows(platform) else ".tar.gz")


def is_windows(platform: str) -> bool:
    return npm.platforms()[platform]["os"] == "win32"


def compiled(platform: str) -> Path:
    """Compiles the program, and returns its path."""
    fields = npm.platforms()[platform]
    # zig compiles and links the C code for musl. The target is linked statically by default.
    build = "zigbuild" if fields.get("libc") else "build"
    command = ["cargo", build, "--release", "--locked", "--target", fields["target"]]
    subprocess.run([*command, "--package", sbom.COMMAND], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / fields["target"] / "release" / program_name(platform)


def printed(program: Path, *arguments: str) -> bytes:
    """Returns what the program prints."""
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, check=True).stdout


def manual(program: Path) -> dict[str, bytes]:
    """Returns the manual pages: of the program, and of each of its commands."""
    page = printed(program, "man")
    commands = re.findall(r"^quorlock\\-(\w+)\(1\)$", page.decode(), re.MULTILINE)
    pages = {f"man/quorlock-{name}.1": printed(program, "man", name) for name in commands}
    return {"man/quorlock.1": page, **pages}


def notices(crates: Sequence[dict[str, Any]], platform: str) -> str:
    """Returns the licences of what the program is linked with."""
    text = licenses.document(licenses.of_third_parties(crates))
    if npm.platforms()[platform].get("libc") == "musl":
        musl = (licenses.TEXTS / "musl.txt").read_text(encoding="utf-8")
        text += f"\n{'-' * 80}\nof musl:\n\n{musl}"
    return text


def contents(program: Path, platform: str) -> dict[str, bytes]:
    """Returns the files of the archive, by their paths in its directory."""
    crates = licenses.linked(npm.platforms()[platform]["target"], [sbom.COMMAND])
    return {
        program_name(platform): program.read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "LICENSE-THIRD-PARTY": notices(crates, platform).encode(),
        "quorlock.cyclonedx.json": f"{json.dumps(sbom.bill(crates), indent=2)}\n".encode(),
        **manual(program),
        **{
            f"completions/{file}": printed(program, "completions", shell)
            for shell, file in COMPLETIONS.items()
        },
    }


def mode(name: str) -> int:
    return PROGRAM_MODE if name in ("quorlock", "quorlock.exe") else FILE_MODE


def tar(files: Mapping[str, bytes], directory: str) -> bytes:
    """Returns a tar.gz whose bytes depend only on the files."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in files.items():
            member = tarfile.TarInfo(f"{directory}/{name}")
            member.size, member.mode = len(data), mode(name)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zipped(files: Mapping[str, bytes], directory: str) -> bytes:
    """Returns a zip whose bytes depend only on the files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(f"{directory}/{name}"), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("platform", choices=platforms())
    parser.add_argument("out", type=Path)
    parser.add_argument("--program", type=Path)
    arguments = parser.parse_args()
    platform: str = arguments.platform
    files = contents(arguments.program or compiled(platform), platform)
    pack = zipped if is_windows(platform) else tar
    arguments.out.mkdir(parents=True, exist_ok=True)
    archive = arguments.out / archive_name(platform)
    archive.write_bytes(pack(files, stem(platform)))
    print(archive)


if __name__ == "__main__":
    main()
