"""The settings with which a server is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.certificates import Certificates


@dataclass(frozen=True)
class Settings:
    """How a server is started and how clients reach it."""

    args: Sequence[str] = ()
    """Further arguments for the server program, such as ["--appendonly", "yes"]."""
    password: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    """ACL users and their rules, such as {"locker": "on >secret ~* +@all"}."""
    unix_socket: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to add to those of this process."""
    host: str = "127.0.0.1"
    certificates: Certificates | None = None
    """If set, the server speaks TLS only."""
    client_certificates: bool = False
    """Whether clients must present a certificate."""
    config: str | None = None
    """The initial content of its configuration file; None for no file."""
    cluster: bool = False

    def arguments(self) -> list[str]:
        """The arguments for the server program."""
        arguments = ["--bind", self.host]
        if self.password is not None:
            arguments += ["--requirepass", self.password]
        for name, rules in self.users.items():
            arguments += ["--user", name, *rules.split()]
        if self.certificates is not None:
            arguments += [
                *("--tls-cert-file", str(self.certificates.server.certificate)),
                *("--tls-key-file", str(self.certificates.server.key)),
                *("--tls-ca-cert-file", str(self.certificates.ca)),
                *("--tls-auth-clients", "yes" if self.client_certificates else "no"),
                *("--tls-replication", "yes"),
            ]
        if self.cluster and self.certificates is not None:
            arguments += ["--tls-cluster", "yes"]
        return [*arguments, *self.args]
