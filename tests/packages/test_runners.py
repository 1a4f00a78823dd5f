"""The npm package in test runners and in programs that run TypeScript."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from packages.sandboxes import Sandbox
from packages.tools import full, write

HOLD = """
  const client = new Client(['memory://a'])
  await client.using('r', async (lease) => {
    expect(lease.valid).toBe(true)
    await expect(client.lock('r', { wait: 0 })).rejects.toBeInstanceOf(LockTimeoutError)
  })
  await client.close()
"""
REQUIRE = "const { Client, LockTimeoutError } = require('quorlock')\n"
IMPORT = "import { Client, LockTimeoutError } from 'quorlock'\n"
TEST = f"test('holds a lock', async () => {{{HOLD}}})\n"
TYPED = TEST.replace("(lease)", "(lease: Lease): Promise<void>")
IMPORT_TYPE = "import type { Lease } from 'quorlock'\n"

PROGRAM = """
async function main(): Promise<void> {
  const client: Client = new Client(['memory://a'])
  const fence: number = await client.using('r', (lease) => lease.fence)
  console.log(fence > 0 ? 'held' : fence)
  await client.close()
}
main()
"""

JEST = "../node_modules/jest/bin/jest.js"


class Runner(NamedTuple):
    """Files of a project, the command that runs its test, and a part of the output of a success."""

    files: dict[str, str]
    command: list[str]
    expected: str


QUICK = {
    "Jest": Runner({"hold.test.js": REQUIRE + TEST}, [JEST], "1 passed"),
    "babel-jest": Runner(
        {
            "hold.test.ts": IMPORT + IMPORT_TYPE + TYPED,
            "babel.config.js": """module.exports = {
              presets: [
                ['@babel/preset-env', { targets: { node: 'current' } }],
                '@babel/preset-typescript',
              ],
            }""",
        },
        [JEST],
        "1 passed",
    ),
    "Vitest": Runner(
        {"hold.test.ts": "import { expect, test } from 'vitest'\n" + IMPORT + IMPORT_TYPE + TYPED},
        ["../node_modules/vitest/vitest.mjs", "run"],
        "1 passed",
    ),
    "mocha": Runner(
        {
            "hold.test.cjs": REQUIRE
            + """const assert = require('node:assert')
              it('holds a lock', async () => {
                const client = new Client(['memory://a'])
                await client.using('r', async () => {
                  await assert.rejects(client.lock('r', { wait: 0 }), LockTimeoutError)
                })
                await client.close()
              })"""
        },
        ["../node_modules/mocha/bin/mocha.js", "hold.test.cjs"],
        "1 passing",
    ),
    "tsx, CommonJS": Runner(
        {"hold.cts": IMPORT + PROGRAM}, ["../node_modules/tsx/dist/cli.mjs", "hold.cts"], "held"
    ),
    "tsx, ES modules": Runner(
        {"hold.mts": IMPORT + PROGRAM}, ["../node_modules/tsx/dist/cli.mjs", "hold.mts"], "held"
    ),
}

TSCONFIG = """{ "compilerOptions": {
  "strict": true, "module": "node16", "target": "es2022", "esModuleInterop": true,
  "isolatedModules": true, "types": ["node", "jest"] } }"""

FULL = {
    "ts-jest": Runner(
        {
            "hold.test.ts": IMPORT + IMPORT_TYPE + TYPED,
            "tsconfig.json": TSCONFIG,
            "jest.config.js": "module.exports = { transform: { '^.+[.]ts$': 'ts-jest' } }",
        },
        [JEST],
        "1 passed",
    ),
    "ts-node": Runner(
        {"hold.ts": IMPORT + PROGRAM, "tsconfig.json": TSCONFIG},
        ["../node_modules/ts-node/dist/bin.js", "hold.ts"],
        "held",
    ),
}


def check(runner: Runner, project: Sandbox) -> None:
    """Runs the test of a project, and removes its files, which other runners would find."""
    before = set(project.directory.iterdir())
    write(project, runner.files)
    done = project.run("node", *runner.command)
    for path in set(project.directory.iterdir()) - before:
        if path.is_file():
            path.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert runner.expected in done.stdout + done.stderr


@pytest.mark.parametrize("name", QUICK)
def test_a_lock_is_held_in(name: str, quick_tools: Sandbox) -> None:
    check(QUICK[name], quick_tools)


@full
@pytest.mark.parametrize("name", FULL)
def test_a_lock_is_held_by_type_checked_code_in(name: str, full_tools: Sandbox) -> None:
    check(FULL[name], full_tools)
