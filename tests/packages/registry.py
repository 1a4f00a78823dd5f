"""A local npm registry that serves only the built packages."""

from __future__ import annotations

import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Manifest = dict[str, Any]


def tarball(manifest: Manifest) -> str:
    """Returns the path of the tarball of a package."""
    name = manifest["name"].removeprefix("@").replace("/", "-")
    return f"tarballs/{name}-{manifest['version']}.tgz"


def pack(manifest: Manifest, tarballs: Path) -> bytes:
    """Returns the tarball of a package. A package that was not built contains only its manifest."""
    built = tarballs / Path(tarball(manifest)).name
    if built.exists():
        return built.read_bytes()
    out, content = BytesIO(), json.dumps(manifest).encode()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/package.json")
        member.size = len(content)
        archive.addfile(member, BytesIO(content))
    return out.getvalue()


@contextmanager
def registry(manifests: list[Manifest], tarballs: Path) -> Iterator[str]:
    """Serves the packages until the end of the block. Yields the URL of the registry.

    The package of another platform contains only its manifest. The registry says that all versions
    are old, because some package managers refuse new ones.
    """
    by_name = {manifest["name"]: manifest for manifest in manifests}
    packed = {tarball(manifest): pack(manifest, tarballs) for manifest in manifests}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path).removeprefix("/")
            if path in by_name:
                self.answer(json.dumps(describe(by_name[path])).encode(), "application/json")
            elif path in packed:
                self.answer(packed[path], "application/octet-stream")
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
        checksum = sha1(packed[tarball(manifest)]).hexdigest()
        dist = {"tarball": f"{url}/{tarball(manifest)}", "shasum": checksum}
        return {
            "name": name,
            "dist-tags": {"latest": version},
            "versions": {version: manifest | {"dist": dist}},
            "time": {version: "2020-01-01T00:00:00.000Z"},
        }

    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
