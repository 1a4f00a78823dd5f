"""Creates certificates for servers with TLS and for their clients, with the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from fleet.errors import ServerError, Unavailable

Kind = Literal["valid", "expired", "other-name", "other-ca", "authority"]
"""The kind of a server's certificate: valid for this machine, or one that clients must reject
because it has expired, is for another name, is signed by a CA that they do not trust, or may itself
sign others."""

_NAMES = "DNS:localhost,IP:127.0.0.1,IP:::1"
_DAY = timedelta(days=1)

# `openssl ca` can set both dates of a certificate in all versions of OpenSSL and LibreSSL.
_CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
database = {directory}/index.txt
new_certs_dir = {directory}
serial = {directory}/serial
policy = policy
default_md = sha256
unique_subject = no
[policy]
commonName = supplied
"""


class Pair(NamedTuple):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Certificates:
    """A trusted CA, an untrusted CA, and certificates signed by them, as files in a directory."""

    def __init__(self, directory: Path, kind: Kind = "valid") -> None:
        if kind not in get_args(Kind):
            raise ServerError(f"unknown certificate {kind!r}, expected one of {get_args(Kind)}")
        if shutil.which("openssl") is None:
            raise Unavailable("certificates for TLS are made by openssl, which is not installed")
        directory.mkdir()
        self._directory = directory
        (directory / "openssl.cnf").write_text(_CONFIG.format(directory=directory))
        (directory / "index.txt").touch()
        (directory / "serial").write_text("01\n")
        self._ca = self._authority("ca")
        self._other_ca = self._authority("other-ca")
        names = "DNS:other.example" if kind == "other-name" else _NAMES
        end = datetime.now(UTC) + (-_DAY if kind == "expired" else _DAY)
        by = self._other_ca if kind == "other-ca" else self._ca
        is_authority = "TRUE" if kind == "authority" else "FALSE"
        extension = f"basicConstraints=CA:{is_authority}\nsubjectAltName={names}"
        self.server = self._sign("server", by, extension, end)
        """The certificate of the servers."""
        for_clients = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth"
        self.client = self._sign("client", self._ca, for_clients)
        """A client certificate that the servers accept."""
        self.other_client = self._sign("other-client", self._other_ca, for_clients)
        """A client certificate that the servers refuse."""

    @property
    def ca(self) -> Path:
        """The certificate of the CA that clients and servers trust."""
        return self._ca.certificate

    def describe(self) -> dict[str, str]:
        """The paths of all files, for use in URLs."""
        files = {
            "ca": self.ca,
            "cert": self.client.certificate,
            "key": self.client.key,
            "other_ca": self._other_ca.certificate,
            "other_cert": self.other_client.certificate,
            "other_key": self.other_client.key,
        }
        return {name: str(file) for name, file in files.items()}

    def _authority(self, name: str) -> Pair:
        pair = self._pair(name)
        self._openssl(
            *("req", "-x509", "-new", "-key", str(pair.key), "-sha256", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "keyUsage=keyCertSign"),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-out", str(pair.certificate)),
        )
        return pair

    def _sign(self, name: str, by: Pair, extension: str, end: datetime | None = None) -> Pair:
        pair = self._pair(name)
        request, extensions = (self._directory / f"{name}.{end}" for end in ("csr", "ext"))
        extensions.write_text(f"{extension}\n")
        self._openssl(
            *("req", "-new", "-key", str(pair.key), "-subj", f"/CN={name}", "-out", str(request))
        )
        end = end or datetime.now(UTC) + _DAY
        self._openssl(
            *("ca", "-batch", "-notext", "-name", "authority"),
            *("-cert", str(by.certificate), "-keyfile", str(by.key)),
            *("-startdate", _date(end - 10 * _DAY), "-enddate", _date(end)),
            *("-extfile", str(extensions), "-in", str(request), "-out", str(pair.certificate)),
        )
        return pair

    def _pair(self, name: str) -> Pair:
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        self._openssl(
            *("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-out", str(pair.key)),
            config=False,
        )
        return pair

    def _openssl(self, command: str, *args: str, config: bool = True) -> None:
        place = ["-config", str(self._directory / "openssl.cnf")] if config else []
        done = subprocess.run(
            ["openssl", command, *place, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerError(f"openssl {command} failed: {done.stderr}")


def _date(at: datetime) -> str:
    return at.strftime("%Y%m%d%H%M%SZ")
