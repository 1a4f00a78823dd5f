"""A local npm registry that serves only the built packages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Manifest = dict[str, Any]


@contextmanager
def registry(manifests: list[Manifest], tarballs: Path) -> Iterator[str]:
    """Serves the packages until the end of the block. Yields the URL of the registry.

    A package without a tarball has metadata, but cannot be downloaded.
    """
    versions = {manifest["name"]: manifest for manifest in manifests}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path).removeprefix("/")
            tarball = tarballs / Path(path).name
            if path in versions:
                self.answer(json.dumps(describe(versions[path])).encode(), "application/json")
            elif path.startswith("tarballs/") and tarball.is_file():
                self.answer(tarball.read_bytes(), "application/octet-stream")
            else:
                self.send_error(404)

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Disables the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"

    def describe(manifest: Manifest) -> Manifest:
        name, version = manifest["name"], manifest["version"]
        file = f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
        served = manifest | {"dist": {"tarball": f"{url}/tarballs/{file}"}}
        return {"name": name, "dist-tags": {"latest": version}, "versions": {version: served}}

    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
