"""Requirements of a release: one version number, one home, all platforms in the workflow."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import home
import install
import npm
import pytest
import version
from packages.sandboxes import CRATES, ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def test_all_packages_have_one_version() -> None:
    command = [sys.executable, str(ROOT / "release" / "version.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_new_version_changes_the_tags_of_the_image(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"run `{home.home().image}:0.1.0`, or {home.home().image}:0.1.0-rc.1\n")
    version.change(page, version.IMAGE, "1.2.3")
    assert page.read_text().count(f"{home.home().image}:1.2.3") == 2
    assert "0.1.0" not in page.read_text()
    assert "rc" not in page.read_text()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with the files that name the home or show how to install the packages."""
    for path, text in home.files(ROOT):
        if home.home().slug in text or home.home().scope in text or path in install.PAGES:
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def test_all_files_name_one_home() -> None:
    assert home.others() == []


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com/{owner}/quorlock/blob/main/README.md",
        "gh attestation verify --repo {owner}/quorlock",
        "ghcr.io/{owner}/quorlock:1.2.3",
        "brew install {owner}/tap/quorlock",
        "@{owner}/linux-x64-gnu",
        "`@{owner}/$" + "{{platform}}`",
    ],
)
def test_a_file_that_names_another_home_is_found(text: str, copy: Path) -> None:
    (copy / "page.md").write_text(text.format(owner="elsewhere"))
    [found] = home.others(copy)
    assert found.startswith("page.md: ")


def test_moving_home_changes_all_files(copy: Path) -> None:
    old, new = home.home(), home.Home("https://code.example.org/locks/quorlock", "@locks")
    home.move(new, copy)
    assert home.home(copy) == new
    assert home.others(copy) == []
    for path, text in home.files(copy):
        assert old.repository not in text, path


@pytest.mark.parametrize(("repository", "scope"), [("quorlock", "@a"), ("https://a.b/c/d", "a")])
def test_an_invalid_home_is_refused(repository: str, scope: str, copy: Path) -> None:
    with pytest.raises(SystemExit, match="must be like"):
        home.move(home.Home(repository, scope), copy)


def test_all_pages_show_the_same_way_to_install() -> None:
    pages = {path: path.read_text() for path in install.PAGES}
    assert all(text.count("<!-- install ") >= 4 for text in pages.values())
    assert any(
        all(install.filled(text, commands) == text for text in pages.values())
        for commands in (install.SOURCE, install.REGISTRIES)
    )


def test_only_pages_of_an_unpublished_version_say_that_it_is_unpublished() -> None:
    [start, *_] = install.PAGES
    is_published = install.filled(start.read_text(), install.REGISTRIES) == start.read_text()
    pages = [ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
    said = [page for page in pages if re.search(r"not (published|released) yet", page.read_text())]
    assert bool(said) != is_published, said


def test_a_release_installs_from_the_registries() -> None:
    for path in install.PAGES:
        text = path.read_text()
        page = install.filled(text, install.REGISTRIES)
        assert "pip install quorlock\n" in page
        assert "npm install quorlock\n" in page
        assert "cargo add quorlock\n" in page
        assert "build/packages" not in page
        assert install.filled(page, install.SOURCE) == install.filled(
            path.read_text(), install.SOURCE
        )


def test_the_workflow_builds_for_all_platforms() -> None:
    text = WORKFLOW.read_text()
    for platform, fields in npm.platforms().items():
        assert f"platform: {platform}, target: {fields['target']}" in text
    assert text.count("{platform: ") == len(npm.platforms())


def test_the_crate_has_a_licence_and_no_tests() -> None:
    command = ["cargo", "package", "--package", "quorlock", "--list", "--allow-dirty"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL)
    files = listed.splitlines()
    assert {"LICENSE", "README.md", "Cargo.toml", "src/lib.rs"} <= set(files)
    assert not [file for file in files if "tests" in file or "simulation" in file]


def test_all_crates_can_be_packaged(tmp_path: Path) -> None:
    # CI also compiles the packages: `cargo publish --workspace --dry-run`.
    packages = [option for crate in CRATES for option in ("--package", crate)]
    options = [
        "--locked",
        "--offline",
        "--no-verify",
        "--allow-dirty",
        "--target-dir",
        str(tmp_path),
    ]
    command = ["cargo", "package", *packages, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {file.name.rsplit("-", 1)[0] for file in tmp_path.glob("package/*.crate")}
    assert made == set(CRATES)
    assert (
        "cargo publish --workspace --locked --dry-run" in (WORKFLOW.parent / "ci.yml").read_text()
    )
    assert f"for crate in {' '.join(CRATES)}; do" in WORKFLOW.read_text()


def test_crates_pin_no_dependency() -> None:
    for directory in CRATES.values():
        manifest = tomllib.loads((ROOT / directory / "Cargo.toml").read_text())
        tables = [manifest, *manifest.get("target", {}).values()]
        for table in tables:
            for name, wanted in table.get("dependencies", {}).items():
                version = wanted if isinstance(wanted, str) else wanted.get("version", "")
                assert not re.search("[=<~,]", version), f"{directory}: {name} {version}"
    assert "cargo update -Z direct-minimal-versions" in (WORKFLOW.parent / "ci.yml").read_text()


def test_nothing_is_published_that_breaks_the_api() -> None:
    text = WORKFLOW.read_text()
    assert "cargo semver-checks --package quorlock" in text
    assert "needs: [ci, semver, pack, image]" in text


def test_rust_types_that_hold_something_must_be_used() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "core/src").rglob("*.rs")))
    for name in ["Client", "ClientBuilder", "Lock", "Lease", "Pending"]:
        pattern = rf"#\[must_use = [^\n]*\n(?:#\[[^\n]*\n)*pub struct {name}\b"
        assert re.search(pattern, text), name
