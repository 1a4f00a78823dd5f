"""A Redis Cluster: masters among which the keys are distributed by slots."""

from __future__ import annotations

from urllib.parse import quote

from fleet.errors import ServerError
from fleet.group import Group, seeds, wait_for
from fleet.independent import NO_PERSISTENCE
from fleet.server import Server
from fleet.settings import Settings

SLOTS = 16384

_QUIET = 600_000
_ALERT = 500
"""Milliseconds without an answer after which the cluster considers a server down. `_QUIET` is in
effect during the tests, so that a busy machine causes no failover. `_ALERT` is in effect during the
start and `fail_over`."""


class Cluster(Group):
    """A Redis Cluster. Servers 0 to 2 are masters. The next `replicas` servers are replicas.

    Server 3 replicates server 0, and server 4 replicates server 1. With `tls`, all servers use TLS.
    """

    def __init__(
        self, *, replicas: int = 0, password: str | None = None, tls: bool = False
    ) -> None:
        super().__init__()
        self._masters = 3
        with self._starting():
            args = [*NO_PERSISTENCE, "--repl-diskless-sync-delay", "0"]
            args += ["--cluster-node-timeout", str(_ALERT)]
            # Otherwise, a replica that has had no master for 15 s never asks for votes again. On a
            # busy machine, the others may take longer to agree that the master is down.
            args += ["--cluster-replica-validity-factor", "0"]
            if password is not None:
                args += ["--masterauth", password]
            settings = Settings(
                args=args,
                password=password,
                certificates=self._certify() if tls else None,
                cluster=True,
            )
            self._start(settings, self._masters + replicas)
            self._share_slots()
            self._meet()
            for index in range(self._masters, len(self)):
                self._follow(index, index - self._masters)
            wait_for("all servers see the whole cluster", self._is_complete)
            self._set_timeout(_QUIET)

    @property
    def seeds(self) -> str:
        """The masters' addresses as they appear in a URL: `host:port`, separated by commas."""
        return ",".join(f"{s.settings.host}:{s.port}" for s in self._servers[: self._masters])

    @property
    def url(self) -> str:
        """The URL of the cluster, for clients."""
        first = self._servers[0]
        scheme = "redis" if first.settings.certificates is None else "rediss"
        password = first.settings.password
        credentials = "" if password is None else f":{quote(password, safe='')}@"
        return f"{scheme}-cluster://{credentials}{self.seeds}{first.tls_query}"

    def describe(self) -> list[dict[str, object]]:
        """Returns the descriptions of the servers, each with the masters' addresses as seeds."""
        return [{**server, **seeds(self.seeds)} for server in super().describe()]

    def slot(self, key: str) -> int:
        """Returns the slot of a key."""
        slot = self._reachable()[0].command("CLUSTER", "KEYSLOT", key)
        assert isinstance(slot, int)
        return slot

    def owner(self, key: str) -> int:
        """Returns the number of the server that reports itself as the owner of the key's slot."""
        slot = self.slot(key)
        for server in self._reachable():
            if _has_slot(server, slot):
                return self._servers.index(server)
        raise ServerError(f"no server has slot {slot}")

    def begin_move(self, key: str, to: int) -> None:
        """Begins to migrate the slot of a key. The target serves keys that the source lacks."""
        slot, source = str(self.slot(key)), self._servers[self.owner(key)]
        target = self._servers[to]
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(target))

    def end_move(self, key: str, to: int) -> None:
        """Migrates the keys of a slot, and then the slot itself, as redis-cli does to reshard."""
        slot, source = str(self.slot(key)), self._servers[self.owner(key)]
        target = self._servers[to]
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            assert isinstance(keys, list)
            password = source.settings.password
            names = [str(name) for name in keys]
            auth = [] if password is None else ["AUTH", password]
            place = ["MIGRATE", target.settings.host, str(target.port), "", "0", "10000"]
            source.command(*place, *auth, "KEYS", *names)
        for server in [target, source]:
            server.command("CLUSTER", "SETSLOT", slot, "NODE", _id(target))
        wait_for("all servers know who has the slot", lambda: self._agree(to, int(slot)))

    def fail_over(self, index: int = 0) -> int:
        """Waits for the failover of a master, which must be killed or frozen.

        Returns the number of the replica that has been promoted.
        """
        replica = index + self._masters
        self._set_timeout(_ALERT)
        wait_for("the replica is promoted", lambda: "myself,master" in _nodes(self[replica]))
        wait_for("all servers see the new master", lambda: self._all_see_master(replica))
        wait_for("the cluster works again", self._is_complete)
        self._set_timeout(_QUIET)
        return replica

    def _share_slots(self) -> None:
        share = -(-SLOTS // self._masters)
        for index, server in enumerate(self._servers[: self._masters]):
            slots = range(index * share, min(SLOTS, (index + 1) * share))
            server.command("CLUSTER", "ADDSLOTS", *slots)
        for index, server in enumerate(self._servers):
            server.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)

    def _meet(self) -> None:
        wait_for("all servers know each other", self._have_met)

    def _have_met(self) -> bool:
        nodes = {_id(server): _nodes(server) for server in self._servers}
        if any("handshake" in known for known in nodes.values()):
            return False
        first, *others = self._servers
        for server in others:
            assert server.bus_port is not None
            # A server gives up a handshake after a second, and does not try again. Both sides may
            # do so. The first server tells the others about each other, as often as it takes.
            if _id(server) not in nodes[_id(first)] or _id(first) not in nodes[_id(server)]:
                first.command("CLUSTER", "MEET", server.settings.host, server.port, server.bus_port)
        return all(name in known for name in nodes for known in nodes.values())

    def _follow(self, index: int, master: int) -> None:
        replica = self._servers[index]
        replica.command("CLUSTER", "REPLICATE", _id(self._servers[master]))
        wait_for(
            "a replica is up to date",
            lambda: "master_link_status:up" in str(replica.command("INFO", "replication")),
        )

    def _is_complete(self) -> bool:
        infos = [str(server.command("CLUSTER", "INFO")) for server in self._reachable()]
        return all("cluster_state:ok" in info for info in infos)

    def _all_see_master(self, index: int) -> bool:
        name = _id(self._servers[index])
        lines = [
            next(line for line in _nodes(server).splitlines() if line.startswith(name))
            for server in self._reachable()
        ]
        return all("master" in line.split()[2] for line in lines)

    def _agree(self, owner: int, slot: int) -> bool:
        return all(
            _has_slot(server, slot) == (server is self._servers[owner])
            for server in self._reachable()
        )

    def _set_timeout(self, milliseconds: int) -> None:
        for server in self._reachable():
            server.command("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def _reachable(self) -> list[Server]:
        return [server for server in self._servers if server.running and not server.frozen]


def _id(server: Server) -> str:
    return str(server.command("CLUSTER", "MYID"))


def _nodes(server: Server) -> str:
    return str(server.command("CLUSTER", "NODES"))


def _has_slot(server: Server, slot: int) -> bool:
    """Whether this server reports that it owns the slot."""
    [line] = (line for line in _nodes(server).splitlines() if "myself" in line)
    for part in line.split()[8:]:
        if part.startswith("["):
            continue
        first, _, last = part.partition("-")
        if int(first) <= slot <= int(last or first):
            return True
    return False
