"""The npm package in bundlers, and in tools that trace the files of a program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from packages.sandboxes import Sandbox
from packages.tools import HERE, write

MAIN = """
async function main() {
  const client = new Client(['memory://a'])
  await client.using('r', (lease) => console.log(lease.fence > 0 ? 'held' : 'not held'))
  await client.close()
}
main()
"""
PROGRAMS = {
    "app.cjs": "const { Client } = require('quorlock')\n" + MAIN,
    "app.mjs": "import { Client } from 'quorlock'\n" + MAIN,
}
SUFFIX = {"cjs": ".cjs", "esm": ".mjs"}
"""The kinds of bundles, and the suffixes of their files."""

BUNDLES = [
    (bundler, program, kind)
    for bundler in ("esbuild", "rollup", "webpack", "vite")
    for program in PROGRAMS
    for kind in SUFFIX
    # Some of them leave `require` in an ES module, where only the bundler's own shim makes it work.
    if (program, kind) != ("app.cjs", "esm")
]


def bundle(project: Sandbox, bundler: str, program: str, kind: str, *external: str) -> Path:
    """Bundles a program in a project, and returns the file."""
    write(project, PROGRAMS)
    shutil.copy(HERE / "bundle.mjs", project.directory)
    name = "-".join([bundler, program[-3:], kind, *external])
    output = project.directory / "dist" / name / f"bundle{SUFFIX[kind]}"
    project.succeed("node", "bundle.mjs", bundler, program, output, kind, *external)
    return output


@pytest.mark.parametrize(("bundler", "program", "kind"), BUNDLES)
def test_a_bundle_names_the_setting_that_mends_it(
    bundler: str, program: str, kind: str, quick_tools: Sandbox
) -> None:
    done = quick_tools.run("node", bundle(quick_tools, bundler, program, kind))
    assert done.returncode == 1
    [message] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "Error: quorlock cannot be bundled" in message
    setting = {
        "esbuild": "--external:quorlock",
        "rollup": "Rollup: external: ['quorlock']",
        "webpack": "webpack: externals: { quorlock: 'node-commonjs quorlock' }",
        "vite": "Vite: ssr.external: ['quorlock']",
    }
    assert setting[bundler] in message


@pytest.mark.parametrize(("bundler", "program", "kind"), BUNDLES)
def test_a_bundle_with_that_setting_holds_a_lock(
    bundler: str, program: str, kind: str, quick_tools: Sandbox
) -> None:
    output = bundle(quick_tools, bundler, program, kind, "external")
    assert quick_tools.succeed("node", output) == "held\n"


@pytest.mark.parametrize(("program", "kind"), [("app.cjs", "cjs"), ("app.mjs", "esm")])
def test_ncc_puts_the_addon_next_to_the_bundle(
    program: str, kind: str, quick_tools: Sandbox, tmp_path: Path
) -> None:
    output = bundle(quick_tools, "ncc", program, kind)
    alone = tmp_path / "alone"
    shutil.copytree(output.parent, alone)
    assert quick_tools.succeed("node", alone / output.name) == "held\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_traced_files_hold_a_lock_elsewhere(
    program: str, quick_tools: Sandbox, tmp_path: Path
) -> None:
    write(quick_tools, PROGRAMS)
    shutil.copy(HERE / "bundle.mjs", quick_tools.directory)
    listed = quick_tools.succeed("node", "bundle.mjs", "nft", program).splitlines()
    assert any(file.endswith("/quorlock.node") for file in listed)
    for file in listed:
        copy = tmp_path / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(quick_tools.directory / file, copy)
    assert quick_tools.succeed("node", tmp_path / program) == "held\n"
