"""Requirements of a release: one version number, all platforms in the workflow."""

from __future__ import annotations

import subprocess
import sys

import npm
from packages.sandboxes import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def test_all_packages_have_one_version() -> None:
    command = [sys.executable, str(ROOT / "release" / "version.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
