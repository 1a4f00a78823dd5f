"""The npm package in applications of frameworks, as these create and build them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packages.sandboxes import Sandbox
from packages.tools import full, write
from servers import Servers

NEXT = {
    "app/layout.js": """export default function Layout({ children }) {
      return <html><body>{children}</body></html>
    }""",
    "app/page.js": "export default function Page() { return <p>quorlock</p> }\n",
    "app/lock/route.js": """
import { Client } from 'quorlock'

export const dynamic = 'force-dynamic'

export async function GET() {
  const client = new Client(process.env.NODES.split(','))
  try {
    return Response.json(await client.using('route', ({ fence, valid }) => ({ fence, valid })))
  } finally {
    await client.close()
  }
}
""",
}
# The tools, one directory up, are those of a monorepo.
NEXT_CONFIG = """import { resolve } from 'node:path'
const root = resolve(import.meta.dirname, '..')
export default { output: 'standalone', outputFileTracingRoot: root, turbopack: { root }, SETTING }
"""
QUIET = {"NEXT_TELEMETRY_DISABLED": "1"}


def build(project: Sandbox, setting: str) -> subprocess.CompletedProcess[str]:
    """Builds the Next.js app in the project."""
    write(project, {**NEXT, "next.config.mjs": NEXT_CONFIG.replace("SETTING", setting)})
    return project.run("node", "../node_modules/next/dist/bin/next", "build", **QUIET)


@full
def test_next_names_the_setting_that_mends_a_build(full_tools: Sandbox) -> None:
    done = build(full_tools, "")
    assert done.returncode == 1
    assert "Error: quorlock cannot be bundled" in done.stderr
    assert "serverExternalPackages: ['quorlock']" in done.stderr


@full
def test_a_standalone_next_server_holds_a_lock(
    full_tools: Sandbox, start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    done = build(full_tools, "serverExternalPackages: ['quorlock']")
    assert done.returncode == 0, done.stdout + done.stderr
    # Elsewhere, so that it has only its own files.
    alone = tmp_path / "alone"
    shutil.copytree(full_tools.directory / ".next" / "standalone", alone, symlinks=True)
    server = subprocess.Popen(
        [full_tools.programs["node"], alone / full_tools.directory.name / "server.js"],
        env={
            **QUIET,
            "HOSTNAME": "127.0.0.1",
            "PORT": "0",
            "NODES": ",".join(start_servers(3).urls),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout
        [url] = next(
            found for line in server.stdout if (found := re.findall(r"http://127[.\d]+:\d+", line))
        )
        with urllib.request.urlopen(f"{url}/lock", timeout=30) as answer:
            lease = json.load(answer)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert lease["valid"]
    assert lease["fence"] > 0


NEST = {
    "app/src/app.module.ts": """
import { Module } from '@nestjs/common';
import { QuorlockModule } from 'quorlock/nestjs';
import { AppController } from './app.controller';
import { AppService } from './app.service';

@Module({
  imports: [QuorlockModule.forRoot({ nodes: ['memory://a'] })],
  controllers: [AppController],
  providers: [AppService],
})
export class AppModule {}
""",
    "app/src/app.service.ts": """
import { Injectable } from '@nestjs/common';
import { Client } from 'quorlock';

@Injectable()
export class AppService {
  constructor(private readonly client: Client) {}

  getHello(): Promise<string> {
    return this.client.using('hello', ({ valid }) => (valid ? 'Hello World!' : 'lost'));
  }
}
""",
}


@full
def test_a_new_nest_application_holds_a_lock(full_tools: Sandbox) -> None:
    nest = "../node_modules/@nestjs/cli/bin/nest.js"
    options = ["--skip-install", "--skip-git", "--package-manager=npm", "--strict"]
    full_tools.succeed("node", nest, "new", "app", *options)
    app = replace(full_tools, directory=full_tools.directory / "app")
    write(full_tools, NEST)
    controller = app.directory / "src" / "app.controller.ts"
    text = controller.read_text()
    assert "getHello(): string" in text
    controller.write_text(text.replace("getHello(): string", "getHello(): Promise<string>"))
    app.succeed("node", f"../{nest}", "build")
    # The application's own test of its route.
    jest = "../../node_modules/jest/bin/jest.js"
    done = app.run("node", jest, "--config", "test/jest-e2e.json")
    assert done.returncode == 0, done.stderr
    assert "1 passed" in done.stderr
