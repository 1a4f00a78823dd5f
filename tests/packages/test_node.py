"""Contents and installation of the npm packages."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import npm
import pytest
from docs.blocks import SKILL
from home import home
from packages.mistakes import MISTAKES, check, with_server
from packages.sandboxes import ROOT, Sandbox, new_project, quick_start
from servers import Servers

NATIVE = (ROOT / "bindings-node" / "native.js").read_text()
ADDONS = {
    platform: re.findall(rf"require\('{home().scope}/([\w-]+)'\)", names)
    for platform, names in re.findall(r"^  '([\w-]+)': \[(.*)\],$", NATIVE, re.MULTILINE)
}
"""The platforms for which the package has addons, and the names of these, as in native.js."""

HELD = re.compile(r"held; write with fence \d{16}\n")


def contents(tarball: Path) -> dict[str, bytes]:
    """Returns the files in an npm tarball."""
    with tarfile.open(tarball) as opened:
        files = {member.name: opened.extractfile(member) for member in opened.getmembers()}
        return {name.removeprefix("package/"): file.read() for name, file in files.items() if file}


def imported(files: dict[str, bytes], name: str) -> Iterator[str]:
    """Yields the module and the files that it imports, directly and indirectly."""
    yield name
    for found in re.findall(r"(?:from|require\() ?'\./([\w.-]+\.m?js)'", files[name].decode()):
        yield from imported(files, found)


def test_the_main_package_has_only_the_needed_files(packages: Path) -> None:
    [tarball] = packages.glob("quorlock-[0-9]*.tgz")
    files = contents(tarball)
    manifest = json.loads(files["package.json"])
    assert "scripts" not in manifest
    assert "dependencies" not in manifest
    version = manifest["version"]
    assert manifest["optionalDependencies"] == {
        f"{home().scope}/{platform}": version for platform in npm.platforms()
    }
    declared = [
        path.removeprefix("./")
        for export in manifest["exports"].values()
        if isinstance(export, dict)
        for condition in export.values()
        for path in condition.values()
    ]
    declared += [path.removeprefix("./") for path in manifest["bin"].values()]
    for conditions in manifest["imports"].values():
        declared += [path.removeprefix("./") for path in conditions.values()]
    needed = {file for name in declared for file in imported(files, name)}
    assert set(files) == needed | {"package.json", "README.md", "LICENSE", npm.SKILL}
    assert files[npm.SKILL] == SKILL.read_bytes()


def test_a_platform_package_has_the_addon_and_its_licences(packages: Path) -> None:
    [tarball] = packages.glob("quorlock-[a-z]*.tgz")
    files = contents(tarball)
    manifest = json.loads(files["package.json"])
    assert "scripts" not in manifest
    assert set(files) == {
        "package.json",
        "README.md",
        "LICENSE",
        "LICENSE-THIRD-PARTY",
        "quorlock.node",
    }
    assert b"\n  redis " in files["LICENSE-THIRD-PARTY"]


def test_the_package_loads_the_addons_of_all_platforms() -> None:
    expected: dict[str, list[str]] = {}
    for name, fields in npm.platforms().items():
        expected.setdefault(f"{fields['os']}-{fields['cpu']}", []).append(name)
    assert expected == ADDONS


def test_require_and_import_give_the_same_objects(node: Sandbox) -> None:
    program = """
      import assert from 'node:assert/strict'
      import { createRequire } from 'node:module'
      const require = createRequire(import.meta.url)
      const [name] = process.argv.slice(1)
      const imported = await import(name)
      assert.deepEqual(Object.keys(imported), Object.keys(require(name)).sort())
      for (const key of Object.keys(imported)) assert.equal(imported[key], require(name)[key], key)
    """
    for entry in ("quorlock", "quorlock/current-lease", "quorlock/prometheus"):
        node.succeed("node", "--input-type=module", "--eval", program, entry)


def test_only_the_addon_of_this_platform_is_installed(node: Sandbox, packages: Path) -> None:
    [addon] = (packages / "addons").iterdir()
    installed = node.directory / "node_modules" / home().scope
    assert [path.name for path in installed.iterdir()] == [addon.name]


def test_the_quick_start_runs_as_a_module(
    node: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    [url] = start_servers(1).urls
    file = node.directory / "quick-start.mjs"
    file.write_text(quick_start("js", url))
    assert HELD.fullmatch(node.succeed("node", file))


def test_the_quick_start_runs_with_require(
    node: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    [url] = start_servers(1).urls
    text = quick_start("js", url)
    loaded = text.replace("import { Client } from 'quorlock'", "").strip()
    assert loaded != text.strip()
    head = "const { Client } = require('quorlock')\nmain()\nasync function main() {\n"
    file = node.directory / "quick-start.cjs"
    file.write_text(f"{head}{loaded}\n}}\n")
    assert HELD.fullmatch(node.succeed("node", "--no-warnings", file))


@pytest.mark.parametrize("module", ["nodenext", "esnext"])
def test_the_quick_start_runs_in_typescript(
    module: str, node: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    [url] = start_servers(1).urls
    text = quick_start("js", url)
    # If the types were missing (`any`), the assignment would compile and @ts-expect-error fail.
    wrong = "\n// @ts-expect-error\nconst text: string = (await client.lock('r')).fence\n"
    directory = node.directory / module
    directory.mkdir()
    (directory / "quick-start.mts").write_text(text)
    (directory / "wrong.mts").write_text(text + wrong)
    options = {
        "strict": True,
        "target": "es2022",
        "lib": ["es2022", "esnext.disposable", "dom"],
        "module": module,
        "moduleResolution": "bundler" if module == "esnext" else module,
        "typeRoots": [str(ROOT / "node_modules" / "@types")],
        "types": ["node"],
    }
    (directory / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    tsc = ROOT / "node_modules" / "typescript" / "bin" / "tsc"
    node.succeed("node", tsc, "--project", directory)
    assert HELD.fullmatch(node.succeed("node", directory / "quick-start.mjs"))


def test_the_command_line_is_installed(
    node: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    [url] = start_servers(1).urls
    quorlock = node.directory / "node_modules" / ".bin" / "quorlock"
    echo = ["node", "-p", "process.env.QUORLOCK_FENCE"]
    assert re.fullmatch(r"\d{16}\n", node.succeed(quorlock, "run", "--node", url, "r", "--", *echo))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_common_mistake_gets_a_helpful_error(
    name: str, node: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    client = with_server(MISTAKES[name].javascript, start_servers)
    program = f"import {{ Client }} from 'quorlock'\nawait {client}.lock('r')\n"
    done = node.run("node", "--input-type=module", "-", stdin=program)
    assert done.returncode == 1
    # What precedes the error is the line of the program.
    shown = re.search(r"^\w*Error.*", done.stderr, re.M | re.S)
    assert shown is not None
    check(shown[0], MISTAKES[name])


def test_importing_without_the_addon_is_an_error_with_advice(
    npm_registry: str, tmp_path: Path
) -> None:
    project = new_project(tmp_path / "project", npm_registry, "--omit=optional")
    done = project.run("node", "--input-type=module", "-", stdin="import 'quorlock'")
    assert done.returncode == 1
    assert "Error: quorlock has addons for darwin-arm64, " in done.stderr
    for part in [f"{home().scope}/", "is not installed", "--omit=optional", "install again"]:
        assert part in done.stderr


def test_importing_on_an_unsupported_platform_lists_the_supported_ones(node: Sandbox) -> None:
    pretend = "Object.defineProperty(process, 'platform', { value: 'sunos' })"
    program = f"{pretend}\nawait import('quorlock')"
    done = node.run("node", "--input-type=module", "-", stdin=program)
    assert done.returncode == 1
    for platform in ADDONS:
        assert platform in done.stderr.partition("Error: quorlock has addons for ")[2]
    for part in ["not for sunos-", "from its sources"]:
        assert part in done.stderr


def test_an_addon_that_cannot_be_loaded_is_named_in_the_error(
    npm_registry: str, tmp_path: Path
) -> None:
    project = new_project(tmp_path / "project", npm_registry)
    [addon] = project.directory.glob(f"node_modules/{home().scope}/*/quorlock.node")
    addon.write_bytes(b"from another platform")
    done = project.run("node", "--input-type=module", "-", stdin="import 'quorlock'")
    assert done.returncode == 1
    assert "cannot be loaded: " in done.stderr
    assert "quorlock.node" in done.stderr
