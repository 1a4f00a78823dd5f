"""Turns the settings of redis-py and valkey-py clients into nodes, for `Client.from_redis`.

Only reads attributes of these clients: opens no connection, and imports neither library, because a
program that has such a client has imported it. No error may contain a user or a password.
"""

import os
import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Never, TypeAlias
from urllib.parse import quote

from ._errors import ConfigError
from ._options import Login

_Ask: TypeAlias = Callable[[], Login | Awaitable[Login]]

_LIBRARIES = ("redis", "redis.asyncio", "valkey", "valkey.asyncio")
"""The modules with the client classes. In all of them, these are `Redis` and `RedisCluster`."""

_HOST = re.compile(r"[^\s\x00-\x20/?#@,%\[\]\\]+")
"""Host names and addresses that a node URL can have. The zone of an IPv6 address is apart."""

_DEFAULTS = {
    "host": "localhost",
    "port": 6379,
    "ssl_cert_reqs": "required",
    # The default of old versions is False. Only a program that sets it wants no check.
    "ssl_check_hostname": True,
}
"""The defaults of settings that are not None."""

_REFUSED = {
    "redis_connect_func": "quorlock runs no commands of the program on its connections",
    "ssl_ca_data": "write the certificates to a PEM file and set ssl_ca_certs",
    "ssl_ca_path": "write the certificates to one PEM file and set ssl_ca_certs",
    "ssl_password": "quorlock reads only keys without a passphrase; decrypt the key file",
    "ssl_ciphers": "quorlock uses all secure ciphers of TLS 1.2 and 1.3; limit them on the server",
    "ssl_validate_ocsp": "quorlock does not use OCSP",
    "ssl_validate_ocsp_stapled": "quorlock does not use OCSP",
    "ssl_include_verify_flags": "quorlock has no such flags",
    "ssl_exclude_verify_flags": "quorlock has no such flags",
}
"""The settings that a node URL cannot express, and why or what to do."""


_OLD_TLS = (0, ssl.TLSVersion.MINIMUM_SUPPORTED, *range(ssl.TLSVersion.TLSv1_2 + 1))
"""The values of `ssl_min_version` that allow TLS 1.2."""


class Node(NamedTuple):
    """A node as a client of another library reaches it."""

    url: str
    """The URL, with the login unless `ask` returns it."""
    bare_url: str
    """The URL without the login of the server."""
    ask: _Ask
    """Returns the login of the server."""
    is_asked: bool
    """Whether `ask` must be called for each connection, because it calls a credential provider."""


def nodes_of(clients: tuple[object, ...]) -> list[Node]:
    """Returns the nodes of the clients, in order. Raises ConfigError for anything else, and for
    settings that quorlock does not have."""
    if not clients:
        raise ConfigError("from_redis needs the clients of 1 or more nodes, and none are given")
    return [_node(position, client) for position, client in enumerate(clients, 1)]


class _Settings:
    """The settings of the connections of one client."""

    def __init__(self, position: int, connection: Mapping[str, Any], kind: type) -> None:
        self._position = position
        self._given = connection
        self._kind = kind

    def __getitem__(self, name: str) -> Any:
        """Returns the value of a setting, or the default of the libraries."""
        return self._given.get(name, _DEFAULTS.get(name))

    def refuse(self, what: str, why: str) -> Never:
        """Raises the ConfigError for a setting that cannot be copied."""
        raise ConfigError(f"client {self._position} has {what}, which cannot be copied: {why}")

    def check(self) -> None:
        """Raises ConfigError for settings that a node URL cannot express."""
        own = self._kind.__module__.partition(".")[0]
        if own not in ("redis", "valkey"):
            self.refuse(
                f"the connection class {self._kind.__qualname__} of the module {own}",
                "quorlock cannot know how it connects; pass node URLs to quorlock.Client",
            )
        for name, why in _REFUSED.items():
            if self[name] and (self.is_encrypted or not name.startswith("ssl_")):
                self.refuse(name, why)

    @property
    def is_encrypted(self) -> bool:
        return bool(self._given.get("ssl")) or self._has_base("SSLConnection")

    @property
    def socket(self) -> Any:
        """The path of the Unix socket, or None."""
        return self["path"] if self._has_base("UnixDomainSocketConnection") else None

    def _has_base(self, name: str) -> bool:
        return any(kind.__name__ == name for kind in self._kind.__mro__)

    def place(self, host: object, port: object) -> str:
        """Returns a host and a port as in a URL."""
        name, zone, interface = self.text("the host", host).partition("%")
        if not _HOST.fullmatch(name) or not re.fullmatch(r"[\w.~-]*", interface):
            self.refuse("a host with characters that no host name has", "correct it")
        if ":" in name:
            name = f"[{name}{'%25' if zone else ''}{interface}]"
        elif zone:
            self.refuse("a host with characters that no host name has", "correct it")
        try:
            return f"{name}:{int(str(port))}"
        except ValueError:
            self.refuse("a port that is no number", "correct it")

    def text(self, what: str, value: object) -> str:
        """Returns a setting as text that can be percent-encoded."""
        try:
            text = value.decode() if isinstance(value, bytes) else str(value)
            text.encode()
        except UnicodeError:
            self.refuse(f"{what} that is not UTF-8", "quorlock takes only text")
        return text

    @property
    def tls(self) -> list[str]:
        """The parameters of the URL for TLS. Empty if there is no TLS."""
        if not self.is_encrypted:
            return []
        # A URL has the number of the version.
        if (self["ssl_min_version"] or 0) not in _OLD_TLS:
            self.refuse(
                "ssl_min_version above TLSv1_2",
                "quorlock also accepts TLS 1.2; set the version on the server",
            )
        parameters = []
        # None and the number 0 stand for "none"; "optional" verifies the certificate, too.
        is_verified = self["ssl_cert_reqs"] not in (None, 0, "none")
        if is_verified and not self["ssl_check_hostname"]:
            self.refuse(
                "ssl_check_hostname=False",
                "quorlock verifies the host name with the certificate; set ssl_check_hostname=True",
            )
        authorities, certificate = self["ssl_ca_certs"], self["ssl_certfile"]
        if not is_verified:
            parameters.append("insecure=true")
        elif authorities:
            parameters.append(f"cacert={self._file('ssl_ca_certs', authorities)}")
        if certificate:
            # Without a file of its own, the key is in the file of the certificate.
            key = self["ssl_keyfile"] or certificate
            parameters.append(f"cert={self._file('ssl_certfile', certificate)}")
            parameters.append(f"key={self._file('ssl_keyfile', key)}")
        return parameters

    def _file(self, what: str, path: object) -> str:
        return quote(self.text(what, os.fspath(path) if isinstance(path, os.PathLike) else path))

    @property
    def login(self) -> Login | None:
        """The user and the password; None if neither is set."""
        user, password = self["username"], self["password"]
        if not user and not password:
            return None
        shown = self.text("a user", user) if user else None
        return shown, self.text("a password", password or "")

    @property
    def provider(self) -> Any:
        """The credential provider, or None."""
        return self["credential_provider"]

    def ask(self) -> Login | Awaitable[Login]:
        """Returns the login for a new connection, which a provider may return later."""
        provider = self.provider
        if provider is None:
            # A user without a password is logged in like this, too, as before any login.
            return self.login or (None, "")
        try:
            return _login(provider.get_credentials())
        except NotImplementedError:
            # Providers for asyncio may have this method only.
            return _later(provider.get_credentials_async())


def _login(credentials: tuple[Any, ...]) -> Login:
    """Returns the user and the password that a provider returned: both, or the password alone."""
    *user, password = (part.decode() if isinstance(part, bytes) else part for part in credentials)
    return (user[0] if user and user[0] else None), password


async def _later(credentials: Awaitable[tuple[Any, ...]]) -> Login:
    return _login(await credentials)


def _node(position: int, client: Any) -> Node:
    kinds = [sys.modules[name] for name in _LIBRARIES if name in sys.modules]
    if _is_any(client, [getattr(library, "RedisCluster", None) for library in kinds]):
        return _cluster(position, client)
    if not _is_any(client, [getattr(library, "Redis", None) for library in kinds]):
        raise ConfigError(f"client {position} {_instead(client)}")
    pool = client.connection_pool
    settings = _Settings(position, pool.connection_kwargs, pool.connection_class)
    settings.check()
    if hasattr(pool, "sentinel_manager"):
        return _master(position, pool, settings)
    database = _database(settings)
    if settings.socket is not None:
        return _unix(settings, database)
    scheme = "rediss" if settings.is_encrypted else "redis"
    place = settings.place(settings["host"] or _DEFAULTS["host"], settings["port"])
    return _made(settings, scheme, place + database, settings.tls)


def _is_any(client: object, classes: list[Any]) -> bool:
    return any(isinstance(kind, type) and isinstance(client, kind) for kind in classes)


def _instead(given: Any) -> str:
    """Returns what is wrong with something that is no client, and what to pass. Shows only its
    class, because a URL may contain a password."""
    kind = type(given)
    advice = "for a client of another library, pass node URLs to quorlock.Client"
    if isinstance(given, (str, bytes)):
        advice = "pass node URLs to quorlock.Client"
    elif isinstance(given, (list, tuple, set, frozenset)):
        advice = "pass each client as an argument of its own: Client.from_redis(*clients)"
    elif hasattr(given, "master_for"):
        advice = "pass sentinel.master_for(service)"
    elif hasattr(given, "connection_kwargs") and hasattr(given, "get_connection"):
        advice = "pass a client of the pool: Redis(connection_pool=pool)"
    elif kind.__name__ == "ClusterNode":
        advice = "pass the RedisCluster"
    name = kind.__qualname__
    name = name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
    return f"must be a client of redis-py or valkey-py, not {name}; {advice}"


def _database(settings: _Settings) -> str:
    """Returns the database as it follows the host in a URL. The core checks the number."""
    database = settings["db"]
    return f"/{quote(settings.text('db', database), safe='')}" if database else ""


def _unix(settings: _Settings, database: str) -> Node:
    path = os.fsdecode(settings.socket)
    if "\0" in path:
        settings.refuse("an abstract socket", "quorlock connects to sockets with a path")
    given = [f"db={database[1:]}"] if database else []
    place = quote(settings.text("a path", os.path.abspath(path)))  # noqa: PTH100
    return _made(settings, "unix", place, given)


def _made(settings: _Settings, scheme: str, rest: str, parameters: list[str]) -> Node:
    """Returns the node with this URL, in which the login has its place."""
    before, added = "", []
    if settings.login is not None:
        user, password = (quote(part or "", safe="") for part in settings.login)
        if scheme == "unix":
            added = [*([f"user={user}"] if user else []), f"pass={password}"]
        else:
            before = f"{user}:{password}@"
    return Node(
        _url(scheme, before + rest, [*parameters, *added]),
        _url(scheme, rest, parameters),
        settings.ask,
        settings.provider is not None,
    )


def _url(scheme: str, rest: str, parameters: list[str]) -> str:
    return f"{scheme}://{rest}{'?' if parameters else ''}{'&'.join(parameters)}"


def _master(position: int, pool: Any, master: _Settings) -> Node:
    """Returns the node of a client that `Sentinel.master_for` made."""
    if not pool.is_master:
        master.refuse("the role of a replica", "locks need the master; pass master_for(service)")
    manager = pool.sentinel_manager
    if getattr(manager, "_force_master_ip", None):
        master.refuse("force_master_ip", "quorlock uses the address that the sentinels report")
    places, logins = [], []
    for client in manager.sentinels:
        of_sentinel = client.connection_pool
        sentinel = _Settings(position, of_sentinel.connection_kwargs, of_sentinel.connection_class)
        sentinel.check()
        if sentinel.provider is not None:
            sentinel.refuse(
                "a credential provider for sentinels",
                "set username and password in sentinel_kwargs",
            )
        if (sentinel.is_encrypted, sentinel.tls) != (master.is_encrypted, master.tls):
            sentinel.refuse(
                "different settings for TLS for the sentinels and the master",
                "give sentinel_kwargs the same ssl and ssl_… settings as the master",
            )
        places.append(sentinel.place(sentinel["host"], sentinel["port"]))
        logins.append(sentinel.login)
    parameters = list(master.tls)
    if logins and (login := logins[0]) is not None:
        user, password = login
        parameters += [f"sentinel_user={quote(user, safe='')}"] if user else []
        parameters.append(f"sentinel_password={quote(password, safe='')}")
    service = quote(master.text("the service", pool.service_name), safe="")
    scheme = "rediss-sentinel" if master.is_encrypted else "redis-sentinel"
    rest = f"{','.join(places)}/{service}{_database(master)}"
    return _made(master, scheme, rest, parameters)


def _cluster(position: int, client: Any) -> Node:
    manager = client.nodes_manager
    # The asyncio client has the settings itself, the other one in its manager.
    given = getattr(client, "connection_kwargs", None) or manager.connection_kwargs
    # Without a class among the settings, the client chooses one of its library.
    library = sys.modules[type(manager).__module__.partition(".")[0]]
    plain = library.SSLConnection if given.get("ssl") else library.Connection
    # The clients set this function themselves, to choose replicas.
    settings = _Settings(
        position,
        {**given, "redis_connect_func": getattr(client, "user_on_connect_func", None)},
        given.get("connection_class") or plain,
    )
    settings.check()
    if getattr(manager, "address_remap", None) is not None:
        settings.refuse("address_remap", "quorlock uses the addresses that the cluster reports")
    # What the program gave. The manager replaces its own list by the servers that it has found,
    # and old versions have only this one.
    known = getattr(client, "startup_nodes", None)
    known = known or [manager.startup_nodes[name] for name in sorted(manager.startup_nodes)]
    places = ",".join(settings.place(node.host, node.port) for node in known)
    scheme = "rediss-cluster" if settings.is_encrypted else "redis-cluster"
    return _made(settings, scheme, places, settings.tls)
