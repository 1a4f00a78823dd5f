"""A master, its replicas, and the sentinels that monitor them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from urllib.parse import quote

from fleet.errors import ServerError
from fleet.group import Group, seeds, wait_for
from fleet.independent import NO_PERSISTENCE
from fleet.resp import Reply, ServerReplyError
from fleet.server import Server
from fleet.settings import Settings

SERVICE = "orders"
"""The name under which the sentinels monitor the master."""

_DOWN_AFTER = 600_000
"""Milliseconds without an answer after which the sentinels consider a master down. So long that
they never do: on a busy machine, they would also replace the new master. `fail_over` asks them."""

# Shorter periods, so that a failover does not take many seconds. Redis before 7.0 cannot set them.
# The periods must not be too short. A replica can be promoted only if its last INFO reply is
# younger than three info-periods, and during a failover, sentinels request INFO only once a second.
# A former master becomes a replica only while the last INFO reply of the new master is younger than
# two info-periods. The other sentinels must learn of a new master within four publish-periods, or
# they make it a replica again.
_HASTE = "ping-period 500 info-period 500 ask-period 50 publish-period 500 election-timeout 1000"
_PATIENCE = "tilt-trigger 600000"


class Sentinel(Group):
    """A Sentinel deployment: server 0 (the initial master), its replicas, then three sentinels.

    Servers 1 to `replicas` are the replicas.

    `password` is that of the master and its replicas, `sentinel_password` that of the sentinels.
    With `tls`, all servers use TLS.
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: bool = False,
    ) -> None:
        super().__init__()
        with self._starting():
            certificates = self._certify() if tls else None
            args = [*NO_PERSISTENCE, "--repl-diskless-sync-delay", "0"]
            if password is not None:
                args += ["--masterauth", password]
            data = Settings(args=args, password=password, certificates=certificates)
            [master] = self._start(data)
            replica = ["--replicaof", data.host, str(master.port)]
            self._start(
                Settings(args=[*args, *replica], password=password, certificates=certificates),
                replicas,
            )
            self._data_count = 1 + replicas
            for server in self.data[1:]:
                wait_for("a replica is up to date", partial(_is_linked, server))
            watching = Settings(
                args=["--sentinel"],
                password=sentinel_password,
                certificates=certificates,
                config=_config(data.host, master.port, password, sentinel_password),
            )
            for sentinel in self._start(watching, 3):
                _hurry(sentinel)
            wait_for("the sentinels know each other and the replicas", self._is_complete)

    @property
    def data(self) -> list[Server]:
        """The master and its replicas."""
        return self._servers[: self._data_count]

    @property
    def sentinels(self) -> list[Server]:
        """The sentinels."""
        return self._servers[self._data_count :]

    @property
    def seeds(self) -> str:
        """The sentinels' addresses as they appear in a URL: `host:port`, separated by commas."""
        return ",".join(f"{s.settings.host}:{s.port}" for s in self.sentinels)

    @property
    def url(self) -> str:
        """The URL of the deployment, for clients."""
        first = self._servers[0]
        scheme = "redis" if first.settings.certificates is None else "rediss"
        password = first.settings.password
        credentials = "" if password is None else f":{quote(password, safe='')}@"
        query = first.tls_query
        secret = self.sentinels[0].settings.password
        if secret is not None:
            query += f"{'&' if query else '?'}sentinel_password={quote(secret, safe='')}"
        return f"{scheme}-sentinel://{credentials}{self.seeds}/{SERVICE}{query}"

    @property
    def master(self) -> Server:
        """The server that all running sentinels currently report as the master."""
        ports = {self._named_by(sentinel) for sentinel in self.sentinels if sentinel.running}
        if len(ports) > 1:
            raise ServerError(f"the sentinels do not agree on the master: {ports}")
        return next(server for server in self.data if server.port in ports)

    def describe(self) -> list[dict[str, object]]:
        """Returns the descriptions of the servers, each with the sentinels' addresses as seeds."""
        return [{**server, **seeds(self.seeds)} for server in super().describe()]

    def fail_over(self) -> int:
        """Makes the sentinels replace the master, which may be running, killed or frozen.

        Returns the number of the new master once all sentinels report it and it has that role.
        """
        old = self.master
        leader = next(sentinel for sentinel in self.sentinels if sentinel.running)

        def is_replaced() -> bool:
            # One reply has both, so a failover that ends in the meantime cannot be begun again.
            known = _pairs(leader.command("SENTINEL", "MASTER", SERVICE))
            if known["port"] == str(old.port) and "failover_in_progress" not in known["flags"]:
                # The sentinel refuses this while it has no recent answer of a replica. It also
                # aborts a failover that it has accepted, if the answers are too old when it selects
                # the replica, or if the replica is not promoted in time. It does not try again.
                leader.command("SENTINEL", "FAILOVER", SERVICE)
            return self.master is not old

        wait_for("the sentinels name another master", is_replaced)
        wait_for("it is a master", lambda: _role(self.master) == "master")
        return self._servers.index(self.master)

    def wait_demoted(self, index: int) -> None:
        """Waits until a former master, which must have been restarted or thawed, is a replica.

        All running sentinels know that it is, so that the next failover may promote it.
        """
        server = self._servers[index]
        wait_for("it is a replica", lambda: _is_linked(server))
        # A sentinel that missed this would take a later promotion for the old role as a master,
        # make the server a replica again, and so undo the failover.
        wait_for("the sentinels know the replica", lambda: self._is_replica_for_all(server))

    def _named_by(self, sentinel: Server) -> int:
        reply = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(reply, list)
        return int(str(reply[1]))

    def _is_replica_for_all(self, server: Server) -> bool:
        for sentinel in self.sentinels:
            if sentinel.running:
                replicas = sentinel.command("SENTINEL", "REPLICAS", SERVICE)
                assert isinstance(replicas, list)
                roles = {known["port"]: known["role-reported"] for known in map(_pairs, replicas)}
                if roles.get(str(server.port)) != "slave":
                    return False
        return True

    def _is_complete(self) -> bool:
        for sentinel in self.sentinels:
            known = _pairs(sentinel.command("SENTINEL", "MASTER", SERVICE))
            replicas = str(self._data_count - 1)
            if (known["num-other-sentinels"], known["num-slaves"]) != ("2", replicas):
                return False
        return True


def _config(host: str, port: int, password: str | None, sentinel_password: str | None) -> str:
    lines = [
        f"sentinel monitor {SERVICE} {host} {port} 2",
        f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER}",
        f"sentinel failover-timeout {SERVICE} 10000",
    ]
    if password is not None:
        lines.append(f'sentinel auth-pass {SERVICE} "{password}"')
    if sentinel_password is not None:
        lines.append(f'sentinel sentinel-pass "{sentinel_password}"')
    return "\n".join([*lines, ""])


def _hurry(sentinel: Server) -> None:
    with suppress(ServerReplyError):
        sentinel.command("SENTINEL", "DEBUG", *f"{_HASTE} {_PATIENCE}".split())


def _pairs(reply: Reply) -> dict[str, str]:
    assert isinstance(reply, list)
    words = [str(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _role(server: Server) -> Reply:
    reply = server.command("ROLE")
    assert isinstance(reply, list)
    return reply[0]


def _is_linked(server: Server) -> bool:
    return "master_link_status:up" in str(server.command("INFO", "replication"))
