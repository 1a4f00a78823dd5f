"""An HTTP client connection over a Unix socket."""

import http.client
import socket
from pathlib import Path

from waiting import TIMEOUT


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(str(self._path))


def is_listening(path: Path) -> bool:
    """Whether a server accepts connections. The socket exists a moment before that."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0
