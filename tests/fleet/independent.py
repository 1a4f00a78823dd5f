"""Independent servers: none of them knows the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.certificates import Kind
from fleet.group import Group
from fleet.settings import Settings

NO_PERSISTENCE = ["--save", "", "--appendonly", "no"]


class Servers(Group):
    """Several empty servers that run until `close()` or the end of `with`.

    `args` are further arguments for the server program, such as ["--appendonly", "yes"],
    `environment` are environment variables to add to those of this process, `users` are ACL users
    and their rules, such as {"locker": "on >secret ~* +@all"}. If `tls` is set, the servers use TLS
    with a certificate of this kind. With `client_certificates`, clients must present a certificate
    too.
    """

    def __init__(
        self,
        count: int,
        *,
        args: Sequence[str] = (),
        unix_socket: bool = False,
        password: str | None = None,
        users: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        tls: Kind | None = None,
        client_certificates: bool = False,
    ) -> None:
        super().__init__()
        with self._starting():
            settings = Settings(
                args=[*NO_PERSISTENCE, *args],
                unix_socket=unix_socket,
                password=password,
                users=users or {},
                environment=environment or {},
                host=host,
                certificates=None if tls is None else self._certify(tls),
                client_certificates=client_certificates,
            )
            self._start(settings, count)
