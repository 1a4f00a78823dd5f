"""Checks or changes the project's home: the address of its repository and its npm scope.

    python release/home.py                     fails if a file names another home
    python release/home.py REPOSITORY SCOPE    changes the home in all files of the repository

home.toml is authoritative. Manifests and pages cannot read it, so they repeat what it says. The
address also determines the names of the container image and of the Homebrew formula.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_REPOSITORY = re.compile(r"https://[\w.-]+\.\w+/[\w-]+/[\w-]+")
_SCOPE = re.compile(r"@[a-z][\w-]*")
_MENTION = re.compile(
    r"(?P<repository>https://git[\w.-]+/[\w-]+/quorlock)\b"
    r"|--repo (?P<slug>[\w-]+/quorlock)\b"
    r"|(?P<tap>[\w-]+/tap/quorlock)\b"
    r"|(?P<image>ghcr\.io/[\w-]+/quorlock)\b"
    r"|(?P<scope>@[a-z][\w-]*)/(?=\$?\{platform\}|(?:linux|darwin|win32|sunos)-)"
)
"""The ways in which a file can name the home."""


@dataclass(frozen=True)
class Home:
    repository: str
    scope: str

    @property
    def slug(self) -> str:
        """The repository's owner and name."""
        return "/".join(self.repository.rsplit("/", 2)[1:])

    @property
    def tap(self) -> str:
        """The name of the Homebrew formula, in the repository `homebrew-tap` of the same owner."""
        return f"{self.slug.partition('/')[0]}/tap/quorlock"

    @property
    def image(self) -> str:
        """The name of the container image, without a tag."""
        return f"ghcr.io/{self.slug}"


def home(root: Path = ROOT) -> Home:
    """Returns the home that home.toml names."""
    return Home(**tomllib.loads((root / "release" / "home.toml").read_text()))


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yields the text files of the repository, except lock files, which name only other homes."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=root, text=True).split("\0"):
        path = root / name
        if not name or path.name == "package-lock.json":
            continue
        if path.is_file() and not path.is_symlink():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def others(root: Path = ROOT) -> list[str]:
    """Returns the places that name another home, as `file: what it names`."""
    expected = home(root)
    return [
        f"{path.relative_to(root)}: {match[0]}"
        for path, text in files(root)
        for match in _MENTION.finditer(text)
        if match.lastgroup and match[match.lastgroup] != getattr(expected, match.lastgroup)
    ]


def move(new: Home, root: Path = ROOT) -> None:
    """Changes the home in all files."""
    if not _REPOSITORY.fullmatch(new.repository):
        raise SystemExit(f"REPOSITORY must be like https://host/owner/name, not {new.repository}")
    if not _SCOPE.fullmatch(new.scope):
        raise SystemExit(f"SCOPE must be like @name, not {new.scope}")
    old = home(root)
    changes = {
        old.repository: new.repository,
        f"--repo {old.slug}": f"--repo {new.slug}",
        old.image: new.image,
        old.tap: new.tap,
        f"{old.scope}/": f"{new.scope}/",
        f'scope = "{old.scope}"': f'scope = "{new.scope}"',
    }
    for path, text in files(root):
        changed = text
        for before, after in changes.items():
            changed = changed.replace(before, after)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 1:
        move(Home(*sys.argv[1:]))
    if wrong := others():
        raise SystemExit("\n".join([f"home.toml: {home()}", *wrong]))
    print(home().repository, home().scope)


if __name__ == "__main__":
    main()
