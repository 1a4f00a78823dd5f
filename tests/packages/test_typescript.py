"""The types of the npm package, for old and new versions of TypeScript and each kind of module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packages.sandboxes import Sandbox
from packages.tools import full, write

BODY = """
  const client: Client = new Client(['memory://a'], { ttl: 5000 })
  const lease: Lease = await client.lock('r')
  const fence: number = lease.fence
  // @ts-expect-error: a fence is a number. This is an error, too, if the types are missing (`any`).
  const text: string = lease.fence
  const lost: Error = new LeaseLostError()
  const current: Lease = currentLease()
  const copied: Client = Client.from({ disconnect() {} }, { ttl: 5000 })
  register({ registerMetric() {} }, client)
"""
IMPORTS = """
import { Client, LeaseLostError, type Lease } from 'quorlock'
import { currentLease } from 'quorlock/current-lease'
import { register } from 'quorlock/prometheus'
"""
OTHERS = """
import { HeldLease, Locked, QuorlockModule } from 'quorlock/nestjs'
import { instrument } from 'quorlock/opentelemetry'
import { Nodes } from 'quorlock/testing'
instrument(new Client(new Nodes(3).urls))
class Jobs {
  @Locked('report', { wait: 0 })
  async report(@HeldLease() lease?: Lease): Promise<boolean> {
    return lease?.valid ?? false
  }
}
export const all = [Jobs, QuorlockModule.forRoot({ ttl: 5_000 })]
"""
# Only in ES modules: NestJS 12 is one, which CommonJS modules cannot import in all versions.
NEST = """
import { Module } from '@nestjs/common'
@Module({ imports: [QuorlockModule.forRoot()], providers: [Jobs] })
export class App {}
"""
# Needs TypeScript 5.4, as Fastify does.
_FASTIFY = """
import Fastify from 'fastify'
import { quorlock } from 'quorlock/fastify'
const app = Fastify()
export const ready = app.register(quorlock, { ttl: 5_000 })
export const fence: Promise<number> = app.quorlock.using('r', (lease) => lease.fence)
"""
FASTIFY = dict.fromkeys(("fastify.mts", "fastify.cts", "fastify.ts"), _FASTIFY)
MAIN = f"export async function main() {{{BODY}}}\n"
FILES = {
    "esm.mts": IMPORTS + OTHERS + NEST + MAIN,
    "cjs.cts": IMPORTS + OTHERS + "import quorlock = require('quorlock')\n"
    "export type Same = quorlock.Client\n" + MAIN,
}
BUNDLED = {"bundled.ts": IMPORTS + OTHERS + NEST + MAIN}

KINDS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "node16": (FILES, {"module": "node16"}),
    "nodenext": (FILES, {"module": "nodenext"}),
    "bundler": (BUNDLED, {"module": "esnext", "moduleResolution": "bundler"}),
    # Without the types of Node.js, and without those of `await using`, which are not in es2022.
    "no Node.js": (
        {"esm.mts": IMPORTS + MAIN, "cjs.cts": IMPORTS + MAIN},
        {"module": "node16", "types": [], "lib": ["es2022", "dom"]},
    ),
}


def compile_types(project: Sandbox, compiler: str, kind: str) -> None:
    """Checks a project of its own, including the declarations of its packages."""
    files, options = KINDS[kind]
    if kind != "no Node.js" and compiler != "typescript-5.2":
        endings = {name.partition(".")[2] for name in files}
        files = files | {
            name: FASTIFY[name] for name in FASTIFY if name.partition(".")[2] in endings
        }
    directory = f"{compiler}-{kind.replace(' ', '-')}"
    given = {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "types": ["node"],
        "experimentalDecorators": True,
        **options,
    }
    config = json.dumps({"compilerOptions": given, "files": list(files)})
    write(project, {f"{directory}/{name}": text for name, text in files.items()})
    write(project, {f"{directory}/tsconfig.json": config})
    tsc = f"../node_modules/{compiler}/bin/tsc"
    project.succeed("node", tsc, "--project", directory)


@pytest.mark.parametrize(
    ("compiler", "kind"),
    [
        ("typescript-5.2", "node16"),
        ("typescript-5.2", "no Node.js"),
        ("typescript-7", "nodenext"),
        ("typescript-7", "bundler"),
        ("typescript-7", "no Node.js"),
    ],
)
def test_the_types_compile(compiler: str, kind: str, quick_tools: Sandbox) -> None:
    compile_types(quick_tools, compiler, kind)


@full
@pytest.mark.parametrize("compiler", ["typescript-5.2", "typescript-7"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_types_compile_with_the_oldest_and_newest_compiler(
    compiler: str, kind: str, quick_tools: Sandbox
) -> None:
    compile_types(quick_tools, compiler, kind)


@full
@pytest.mark.parametrize(
    "compiler", ["typescript-5.4", "typescript-5.7", "typescript", "typescript-6"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_types_compile_with_other_compilers(
    compiler: str, kind: str, full_tools: Sandbox
) -> None:
    compile_types(full_tools, compiler, kind)


def test_are_the_types_wrong_finds_nothing(packages: Path, quick_tools: Sandbox) -> None:
    [tarball] = packages.glob("quorlock-[0-9]*.tgz")
    attw = "../node_modules/@arethetypeswrong/cli/dist/index.js"
    output = quick_tools.succeed("node", attw, tarball, "--format", "json")
    report = json.loads(output)
    assert report["analysis"]["types"]
    assert not report.get("problems")


def test_publint_finds_nothing(packages: Path, quick_tools: Sandbox) -> None:
    tarballs = list(packages.glob("*.tgz"))
    assert len(tarballs) == 2
    for tarball in tarballs:
        output = quick_tools.succeed(
            "node", "../node_modules/publint/src/cli.js", tarball, "--strict"
        )
        assert "All good!" in output
