"""The archives of the `quorlock` command, and what finds and installs them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import command
import formula
import home
import licenses
import npm
import pytest
import sbom
import version
from command_line import cargo_program
from packages.archives import PLATFORM, files
from packages.sandboxes import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
SYSTEM_UNITS = sorted(ROOT.glob("examples/**/*.service"))
INSTALLED = "/usr/local/bin/quorlock"


def test_the_archive_has_the_pages_of_all_commands(archive: Path) -> None:
    found = files(archive)
    listed = subprocess.check_output([cargo_program(), "--help"], text=True)
    commands = re.findall(
        r"^  (\w+)  ", listed.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert {"run", "serve", "doctor"} <= set(commands)
    pages = {"man/quorlock.1", *(f"man/quorlock-{name}.1" for name in commands)}
    assert pages == {name for name in found if name.startswith("man/")}
    for page in pages:
        assert f".TH {Path(page).stem} 1 " in found[page].decode()
    assert {f"completions/{file}" for file in command.COMPLETIONS.values()} <= found.keys()


def test_bash_completes_the_words_of_the_archive(archive: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    script = tmp_path / "quorlock.bash"
    script.write_bytes(files(archive)["completions/quorlock.bash"])
    ask = 'source "$1"; COMP_WORDS=(quorlock ser) COMP_CWORD=1; _quorlock quorlock ser;'
    ask += ' echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        [bash, "-c", ask, bash, script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["serve"], done.stderr


def test_the_archive_names_what_the_program_is_linked_with(archive: Path) -> None:
    found = files(archive)
    notices = found["LICENSE-THIRD-PARTY"].decode()
    bill = json.loads(found["quorlock.cyclonedx.json"])
    linked = licenses.linked(npm.platforms()[PLATFORM]["target"], [sbom.COMMAND])
    names = {crate["name"] for crate in linked}
    assert {"quorlock", "quorlock-protocol", "clap", "rustls", "tokio"} <= names
    assert not names & {"pyo3", "napi", "proptest"}
    assert {part["name"] for part in bill["components"]} == names - {sbom.COMMAND}
    assert bill["metadata"]["component"]["version"] == version.version()
    for part in [*bill["components"], bill["metadata"]["component"]]:
        assert part["purl"] == f"pkg:cargo/{part['name']}@{part['version']}"
        assert re.fullmatch(r"[\w.() +-]+", part["licenses"][0]["expression"])
    for crate in licenses.of_third_parties(linked):
        assert f"  {crate['name']} {crate['version']}: {crate['license']}\n" in notices
    assert "of musl:\n" in notices


def test_an_archive_depends_only_on_its_files(tmp_path: Path) -> None:
    content = {"quorlock": b"program", "LICENSE": b"text"}
    for pack in (command.tar, command.zipped):
        assert pack(content, "directory") == pack(content, "directory")
    (tmp_path / "it.zip").write_bytes(command.zipped(content, "directory"))
    with zipfile.ZipFile(tmp_path / "it.zip") as archive:
        assert archive.namelist() == ["directory/quorlock", "directory/LICENSE"]


def expanded(template: str, **values: str) -> str:
    """Expands a template of cargo-binstall."""
    return re.sub(r"\{ ([\w-]+) \}", lambda match: values[match[1]], template)


@pytest.mark.parametrize("platform", command.platforms())
def test_cargo_binstall_finds_the_archive(platform: str) -> None:
    manifest = tomllib.loads((ROOT / "cli" / "Cargo.toml").read_text())
    metadata = manifest["package"]["metadata"]["binstall"]
    target = npm.platforms()[platform]["target"]
    # cargo-binstall tries all suffixes of a format.
    suffix = {"tgz": ".tar.gz", "zip": ".zip"}[
        metadata["overrides"].get(target, metadata)["pkg-fmt"]
    ]
    values = {
        "repo": home.home().repository,
        "version": version.version(),
        "target": target,
        "archive-suffix": suffix,
        "bin": manifest["bin"][0]["name"],
        "binary-ext": ".exe" if "windows" in target else "",
    }
    assert expanded(metadata["pkg-url"], **values) == (
        f"{home.home().repository}/releases/download/v{version.version()}"
        f"/{command.archive_name(platform)}"
    )
    assert expanded(metadata["bin-dir"], **values) == (
        f"{command.stem(platform)}/{command.program_name(platform)}"
    )


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A directory with a file in place of each archive."""
    for platform in command.platforms():
        (tmp_path / command.archive_name(platform)).write_text(platform)
    return tmp_path


def test_the_formula_installs_the_archives(archives: Path) -> None:
    text = formula.formula(archives)
    downloads = re.findall(r'url "(.*)"\n +sha256 "(.*)"', text)
    assert len(downloads) == 4
    for url, digest in downloads:
        directory, _, name = url.rpartition("/")
        assert directory == f"{home.home().repository}/releases/download/v{version.version()}"
        assert hashlib.sha256((archives / name).read_bytes()).hexdigest() == digest
    assert "windows" not in text


def test_the_formula_installs_what_the_archive_has(archive: Path, archives: Path) -> None:
    shutil.copy(archive, archives)
    found = files(archive)
    install = formula.formula(archives).partition("def install")[2].partition("  end")[0]
    for name in re.findall(r'"([\w./-]+)"(?! *$)|install "([\w./-]+)"', install):
        file = name[0] or name[1]
        assert file in found, file
    assert 'Dir["man/*.1"]' in install


def test_ruby_accepts_the_formula(archives: Path) -> None:
    ruby = shutil.which("ruby") or pytest.skip("ruby is not installed")
    text = formula.formula(archives)
    done = subprocess.run([ruby, "-c"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_workflow_publishes_the_archives_of_all_platforms() -> None:
    text = WORKFLOW.read_text()
    built = re.findall(r"\{platform: ([\w-]+), [^}]*command: true\}", text)
    assert built == command.platforms()
    assert "release/formula.py" in text
    [upload] = re.findall(r"gh release create .*", text)
    assert {"SHA256SUMS", "command/*"} <= set(upload.split())
    [subjects] = re.findall(r"subject-path: \|\n((?: +\S+\n)+)", text)
    assert "command/*" in subjects.split()


def test_the_commands_of_the_page_install_the_archive(archive: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "packages.md").read_text()
    [block] = re.findall(r"^```sh\n(gh release download .*?)```", page, re.MULTILINE | re.DOTALL)
    shutil.copy(archive, tmp_path)
    steps = [line for line in block.splitlines() if not line.startswith("gh ")]
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    script = "\n".join(steps).replace("sudo ", "").replace("/usr/local", str(prefix))
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True)
    assert subprocess.check_output([prefix / "bin" / "quorlock", "--version"])
    assert (prefix / "share/man/man1/quorlock-run.1").exists()
    assert (prefix / "share/bash-completion/completions/quorlock").exists()


@pytest.mark.parametrize("unit", SYSTEM_UNITS, ids=lambda unit: unit.name)
def test_units_start_the_program_where_the_page_installs_it(unit: Path) -> None:
    page = (ROOT / "docs" / "packages.md").read_text()
    assert re.search(r"^sudo install \S+/quorlock /usr/local/bin/$", page, re.MULTILINE)
    [start] = re.findall(r"^ExecStart=(\S+)", unit.read_text(), re.MULTILINE)
    assert start == INSTALLED
