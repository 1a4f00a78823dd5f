"""The npm package in Bun and Deno, from their npm packages."""

from __future__ import annotations

from collections.abc import Callable

from packages.sandboxes import Sandbox, quick_start
from packages.test_node import HELD
from packages.tools import write
from servers import Servers

# A lease does not keep the process alive; the timer does.
LOSS = """
import { createRequire } from 'node:module'
import { Client, LeaseLostError } from 'quorlock'

const timer = setInterval(() => {}, 1000)
const client = new Client(['URL'])
const lease = await client.lock('lost', { ttl: 100, autoExtend: false })
await new Promise((lost) => lease.signal.addEventListener('abort', lost))
console.log(lease.signal.reason instanceof LeaseLostError, lease.valid)
const { LockTimeoutError } = createRequire(import.meta.url)('quorlock')
await client.using('held', async () => {
  const error = await client.lock('held', { wait: 0 }).catch((error) => error)
  console.log(error instanceof LockTimeoutError)
})
await client.close()
clearInterval(timer)
"""

BUN = ["../node_modules/@oven/bun-*/bin/bun"]
DENO = ["../node_modules/@deno/*/deno", "run", "--allow-ffi"]


def check(command: list[str], project: Sandbox, start_servers: Callable[..., Servers]) -> None:
    """Runs the quick start, and a program that loses a lease. The program's path is a pattern."""
    [program] = project.directory.glob(command[0])
    [url] = start_servers(1).urls
    write(project, {"start.mjs": quick_start("js", url), "loss.mjs": LOSS.replace("URL", url)})
    assert HELD.fullmatch(project.succeed(program, *command[1:], "start.mjs"))
    assert project.succeed(program, *command[1:], "loss.mjs") == "true false\ntrue\n"


def test_bun_holds_and_loses_a_lock(
    quick_tools: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    check(BUN, quick_tools, start_servers)


def test_deno_holds_and_loses_a_lock(
    quick_tools: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    check(DENO, quick_tools, start_servers)
