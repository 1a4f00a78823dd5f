"""Prints the Homebrew formula of the `quorlock` command.

    python release/formula.py ARCHIVES

ARCHIVES is a directory with the archives of macOS and Linux, from command.py. The formula installs
the archives of the release, whose checksums it contains.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import command
from home import home
from version import version

FORMULA = """\
class Quorlock < Formula
  desc "Run a command under a distributed lock, look at locks and nodes"
  homepage "{repository}"
  version "{version}"
  license "MIT"

{systems}

  def install
    bin.install "quorlock"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/quorlock.bash" => "quorlock"
    fish_completion.install "completions/quorlock.fish"
    zsh_completion.install "completions/_quorlock"
    doc.install "LICENSE-THIRD-PARTY", "quorlock.cyclonedx.json"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/quorlock --version")
    output = shell_output("#{{bin}}/quorlock run --quiet --node memory://a smoke -- echo held")
    assert_equal "held", output.strip
  end
end
"""

SYSTEM = """\
  on_{system} do
    on_arm do
{arm}
    end
    on_intel do
{intel}
    end
  end"""

SYSTEMS = {
    "macos": {"arm": "darwin-arm64", "intel": "darwin-x64"},
    "linux": {"arm": "linux-arm64-musl", "intel": "linux-x64-musl"},
}
"""The platforms, by Homebrew's names of the systems and processors."""


def download(platform: str, archives: Path) -> str:
    """Returns the lines with the address and the checksum of one archive."""
    name = command.archive_name(platform)
    digest = hashlib.sha256((archives / name).read_bytes()).hexdigest()
    url = f"{home().repository}/releases/download/v{version()}/{name}"
    return f'      url "{url}"\n      sha256 "{digest}"'


def formula(archives: Path) -> str:
    """Returns the formula that installs these archives."""
    systems = "\n\n".join(
        SYSTEM.format(
            system=system, **{cpu: download(platform, archives) for cpu, platform in each.items()}
        )
        for system, each in SYSTEMS.items()
    )
    return FORMULA.format(repository=home().repository, version=version(), systems=systems)


if __name__ == "__main__":
    print(formula(Path(sys.argv[1])), end="")
