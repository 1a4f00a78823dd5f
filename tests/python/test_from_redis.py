"""`Client.from_redis`: nodes from the settings of real redis-py and valkey-py clients."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.cluster
import redis.credentials
import redis.sentinel
import valkey
import valkey.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel
from fleet.cluster import Cluster
from fleet.independent import Servers
from fleet.sentinel import SERVICE, Sentinel
from servers import Server

import quorlock

Start = Callable[..., Servers]

SECRET = "s3cret/@:?#%é"
"""Each character but the letters has a meaning in URLs."""

CLASSES = [redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey]
CLUSTERS = [
    redis.RedisCluster,
    redis.asyncio.RedisCluster,
    valkey.ValkeyCluster,
    valkey.asyncio.ValkeyCluster,
]
SENTINELS = [
    redis.sentinel.Sentinel,
    redis.asyncio.sentinel.Sentinel,
    valkey.sentinel.Sentinel,
    valkey.asyncio.sentinel.Sentinel,
]


ONLY_APP: dict[str, Any] = {
    "password": "that of others",
    "users": {"app": f"on >{SECRET} ~* &* +@all"},
}
"""Settings of servers with a user `app`. The default user has a password that no test copies."""


def name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__name__}"


each_class = pytest.mark.parametrize("kind", CLASSES, ids=name)
each_sentinel = pytest.mark.parametrize("kind", SENTINELS, ids=name)
each_cluster = pytest.mark.parametrize("kind", CLUSTERS, ids=name)


def read(client: Any, key: str) -> str | None:
    """Returns the value of the key as this client sees it, and closes the client."""

    async def wait() -> Any:
        try:
            return await client.get(key)
        finally:
            await client.aclose()

    with_loop = name(type(client)).split(".")[1] == "asyncio"
    value = asyncio.run(wait()) if with_loop else client.get(key)
    assert value is None or isinstance(value, bytes)
    return None if value is None else value.decode()


def check(make: Callable[[], Any], **options: Any) -> tuple[str, ...]:
    """Locks a resource with the settings of the client that `make` returns, and checks that this
    client sees the key. Returns the addresses of the nodes."""
    existing = make()
    with quorlock.Client.from_redis(existing, node_timeout=5, **options) as client:
        with client.lock("r") as lease:
            assert read(existing, "r") == lease.token
        shown = f"{client!r} {client.stats()} {client.doctor()}"
    assert SECRET not in shown
    assert "s3cret" not in shown
    return client.nodes


@each_class
def test_host_and_port_are_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1)
    assert check(lambda: kind(port=server.port)) == (f"redis://localhost:{server.port}",)
    assert check(lambda: kind.from_url(server.url)) == (server.url,)


@each_class
def test_database_is_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1)
    expected = (f"{server.url}/3",)
    assert check(lambda: kind(host="127.0.0.1", port=server.port, db=3)) == expected
    assert check(lambda: kind.from_url(f"{server.url}/3")) == expected
    assert check(lambda: kind.from_url(f"{server.url}?db=3")) == expected


@each_class
def test_address_of_ipv6_is_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, host="::1")
    assert check(lambda: kind(host="::1", port=server.port)) == (f"redis://[::1]:{server.port}",)
    other = quorlock.Client.from_redis(kind(host="fe80::1%eth0", port=7))
    assert other.nodes == ("redis://[fe80::1%eth0]:7",)


@each_class
def test_login_is_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, **ONLY_APP)
    login = {"username": "app", "password": SECRET}
    assert check(lambda: kind(port=server.port, **login)) == (f"redis://localhost:{server.port}",)


@each_class
def test_password_of_the_default_user_is_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, password=SECRET)
    assert check(lambda: kind(port=server.port, password=SECRET))
    assert check(lambda: kind.from_url(server.url))


@each_class
def test_unix_socket_is_copied(
    start_servers: Start, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [server] = start_servers(1, unix_socket=True, **ONLY_APP)
    path = str(server.socket_path)
    login = {"username": "app", "password": SECRET}
    assert check(lambda: kind(unix_socket_path=path, db=2, **login)) == (f"unix://{path}/2",)
    monkeypatch.chdir(server.socket_path.parent)
    name = server.socket_path.name
    assert check(lambda: kind(unix_socket_path=name, **login)) == (f"unix://{path}",)


def encrypted(server: Server) -> dict[str, Any]:
    """Returns the settings for TLS with certificates on both sides."""
    files = server.settings.certificates
    assert files is not None
    return {
        "ssl": True,
        "ssl_ca_certs": str(files.ca),
        "ssl_certfile": str(files.client.certificate),
        "ssl_keyfile": str(files.client.key),
        "ssl_check_hostname": True,
    }


@each_class
def test_tls_is_copied(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, tls="valid", client_certificates=True, password=SECRET)
    settings = {"port": server.port, "password": SECRET, **encrypted(server)}
    assert check(lambda: kind(**settings)) == (f"rediss://localhost:{server.port}",)
    for verified in ("required", "optional", ssl.CERT_REQUIRED):
        if isinstance(verified, str) or kind is not valkey.asyncio.Valkey:  # which fails with it
            assert check(lambda: kind(**settings, ssl_cert_reqs=verified))  # noqa: B023


@each_class
def test_key_in_the_file_of_the_certificate_is_found(
    start_servers: Start, kind: Any, tmp_path: Path
) -> None:
    [server] = start_servers(1, tls="valid", client_certificates=True)
    settings = encrypted(server)
    if kind is valkey.asyncio.Valkey:
        pytest.skip("it uses no certificate without ssl_keyfile")
    both = tmp_path / "both & more.pem"
    key = Path(settings.pop("ssl_keyfile"))
    both.write_text(Path(settings["ssl_certfile"]).read_text() + key.read_text())
    assert check(lambda: kind(port=server.port, **{**settings, "ssl_certfile": str(both)}))


@each_class
@pytest.mark.parametrize("off", ["none", ssl.CERT_NONE])
def test_tls_without_verification_is_copied(start_servers: Start, kind: Any, off: object) -> None:
    if kind is valkey.asyncio.Valkey and off == ssl.CERT_NONE:
        pytest.skip("it fails with this value")
    [server] = start_servers(1, tls="other-ca")
    files = server.settings.certificates
    assert files is not None
    settings: dict[str, Any] = {"ssl": True, "ssl_cert_reqs": off, "ssl_check_hostname": False}
    assert check(lambda: kind(port=server.port, **settings, ssl_ca_certs=str(files.ca)))


@each_class
def test_certificate_is_verified_as_before(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, tls="other-name")
    existing = kind(port=server.port, **encrypted(server))
    with quorlock.Client.from_redis(existing) as client:
        with pytest.raises(quorlock.QuorumError, match="another name than localhost"):
            client.lock("r", wait=0).acquire()


class Vault:
    """Credential providers of the libraries, which count their calls."""

    def __init__(self, user: str | None = "app") -> None:
        self.user = user
        self.calls = 0

    def login(self) -> tuple[str] | tuple[str, str]:
        self.calls += 1
        return (SECRET,) if self.user is None else (self.user, SECRET)

    @property
    def provider(self) -> Any:
        vault = self

        class Provider(redis.credentials.CredentialProvider):
            def get_credentials(self) -> tuple[str] | tuple[str, str]:
                return vault.login()

            async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
                return vault.login()

        return Provider()

    @property
    def provider_for_asyncio(self) -> Any:
        vault = self

        class Provider(redis.credentials.CredentialProvider):
            async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
                await asyncio.sleep(0.001)
                return vault.login()

        return Provider()


@each_class
def test_credential_provider_is_asked_for_each_connection(start_servers: Start, kind: Any) -> None:
    [server] = start_servers(1, **ONLY_APP)
    vault = Vault()
    existing = kind(port=server.port, credential_provider=vault.provider)
    with quorlock.Client.from_redis(existing, node_timeout=5) as client:
        assert vault.calls == 0
        client.lock("r").acquire().release()
        assert vault.calls >= 1
        before = vault.calls
        server.kill()
        server.restart()
        with client.lock("r", wait=None):
            assert vault.calls > before


def test_credential_provider_may_return_bytes(start_servers: Start) -> None:
    class Provider(redis.credentials.CredentialProvider):
        def get_credentials(self) -> Any:
            return b"app", SECRET.encode()

    [server] = start_servers(1, **ONLY_APP)
    assert check(lambda: redis.Redis(port=server.port, credential_provider=Provider()))


def test_credential_provider_for_asyncio_is_asked(start_servers: Start) -> None:
    [server] = start_servers(1, **ONLY_APP)
    vault = Vault()
    login = {"credential_provider": vault.provider_for_asyncio}
    assert check(lambda: redis.asyncio.Redis(port=server.port, **login))
    assert vault.calls >= 2


def test_each_node_has_its_own_login(start_servers: Start) -> None:
    first, second, third, fourth = (
        *start_servers(1, **ONLY_APP),
        *start_servers(1, password=SECRET),
        *start_servers(1, users={"static": f"on >{SECRET} ~* &* +@all"}),
        *start_servers(1),
    )
    clients: list[Any] = [
        redis.Redis(port=first.port, credential_provider=Vault().provider),
        redis.Redis(port=second.port, credential_provider=Vault(None).provider),
        redis.Redis(port=third.port, username="static", password=SECRET),
        valkey.Valkey(port=fourth.port),
    ]
    with quorlock.Client.from_redis(*clients, node_timeout=5) as client:
        diagnosis = client.doctor()
        assert [node.reachable for node in diagnosis.nodes] == [True] * 4, diagnosis
        with client.lock("r"):
            pass


def test_option_credentials_replaces_the_logins(start_servers: Start) -> None:
    [server] = start_servers(1, **ONLY_APP)
    wrong: list[dict[str, Any]] = [
        {"password": "wrong"},
        {"credential_provider": Vault("wrong").provider},
    ]
    for login in wrong:
        existing = redis.Redis(port=server.port, **login)
        options: Any = {"credentials": lambda _: ("app", SECRET), "node_timeout": 5}
        with quorlock.Client.from_redis(existing, **options) as client, client.lock("r"):
            pass


def test_three_clients_are_three_nodes(start_servers: Start) -> None:
    servers = start_servers(3)
    clients = [redis.Redis.from_url(url) for url in servers.urls]
    with quorlock.Client.from_redis(*clients, ttl=5, key_prefix="app:") as client:
        assert client.nodes == tuple(servers.urls)
        servers[0].kill()
        with client.lock("r") as lease:
            assert clients[1].get("app:r") == lease.token.encode()
            assert 4 < lease.remaining <= 5


def test_nothing_connects(start_servers: Start) -> None:
    [server] = start_servers(1)

    def connections() -> int:
        stats = str(server.command("INFO", "stats"))
        return int(stats.partition("total_connections_received:")[2].split()[0])

    before = connections()
    clients = [kind(port=server.port) for kind in CLASSES]
    for existing in clients:
        quorlock.Client.from_redis(existing)
    assert connections() == before + 1


def test_client_that_is_closed_is_still_copied(start_servers: Start) -> None:
    [server] = start_servers(1)
    existing = redis.Redis(port=server.port)
    with closing(existing):
        existing.ping()
    with quorlock.Client.from_redis(existing) as client, client.lock("r"):
        pass


def test_subclass_makes_an_instance_of_itself() -> None:
    class Locks(quorlock.Client):
        pass

    assert type(Locks.from_redis(redis.Redis())) is Locks


def test_subclass_and_pool_of_a_client_are_copied(start_servers: Start) -> None:
    [server] = start_servers(1)

    class Cache(redis.Redis):
        pass

    pool = redis.BlockingConnectionPool.from_url(f"{server.url}/4")
    assert check(lambda: Cache(connection_pool=pool)) == (f"{server.url}/4",)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinel]:
    with Sentinel(password=SECRET, sentinel_password="s3cret of sentinels") as group:
        yield group


def addresses(group: Sentinel) -> list[tuple[str, int]]:
    return [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]


@each_sentinel
def test_master_of_sentinels_is_copied(sentinels: Sentinel, kind: Any) -> None:
    def make(**settings: Any) -> Any:
        login = {"password": "s3cret of sentinels"}
        manager = kind(addresses(sentinels), sentinel_kwargs=login, password=SECRET)
        return manager.master_for(SERVICE, **settings)

    url = f"redis-sentinel://{sentinels.seeds}/{SERVICE}"
    assert check(make) == (url,)
    assert check(lambda: make(db=5)) == (f"{url}/5",)


@each_sentinel
def test_credential_provider_of_a_master_is_asked(sentinels: Sentinel, kind: Any) -> None:
    def make() -> Any:
        login = {"password": "s3cret of sentinels"}
        manager = kind(addresses(sentinels), sentinel_kwargs=login)
        return manager.master_for(SERVICE, credential_provider=Vault(None).provider)

    assert check(make)


@pytest.fixture(scope="module")
def tls_sentinels() -> Iterator[Sentinel]:
    with Sentinel(tls=True) as group:
        yield group


@each_sentinel
def test_tls_of_sentinels_is_copied(tls_sentinels: Sentinel, kind: Any) -> None:
    group, tls = tls_sentinels, encrypted(tls_sentinels[0])

    def make() -> Any:
        return kind(addresses(group), sentinel_kwargs=tls, **tls).master_for(SERVICE)

    assert check(make) == (f"rediss-sentinel://{group.seeds}/{SERVICE}",)


@each_sentinel
def test_settings_of_sentinels_that_cannot_be_copied_are_refused(kind: Any) -> None:
    def refusal(client: Any) -> str:
        with pytest.raises(quorlock.ConfigError) as caught:
            quorlock.Client.from_redis(client)
        assert "s3cret" not in str(caught.value)
        return str(caught.value)

    places = [("127.0.0.1", 26379)]
    assert "the role of a replica" in refusal(kind(places).slave_for(SERVICE))
    half = {"ssl": True, "ssl_check_hostname": True}
    assert "different settings for TLS" in refusal(kind(places, **half).master_for(SERVICE))
    sentinel_kwargs = {"credential_provider": Vault().provider}
    assert "a credential provider for sentinels" in refusal(
        kind(places, sentinel_kwargs=sentinel_kwargs).master_for(SERVICE)
    )
    if "force_master_ip" in inspect.signature(kind).parameters:
        forced = kind(places, force_master_ip="10.0.0.9").master_for(SERVICE)
        assert "force_master_ip" in refusal(forced)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(password=SECRET) as group:
        yield group


@each_cluster
def test_cluster_is_copied(cluster: Cluster, kind: Any) -> None:
    port = cluster[1].port

    def make() -> Any:
        return kind(host="127.0.0.1", port=port, password=SECRET)

    assert len(check(make)) == 1
    assert check(lambda: kind.from_url(cluster[1].url))
    assert check(
        lambda: kind(host="127.0.0.1", port=port, credential_provider=Vault(None).provider)
    )


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        (redis.RedisCluster, redis.cluster.ClusterNode),
        (redis.asyncio.RedisCluster, redis.asyncio.cluster.ClusterNode),
    ],
    ids=name,
)
def test_start_nodes_of_a_cluster_are_copied(cluster: Cluster, kind: Any, node: Any) -> None:
    given = [node("127.0.0.1", server.port) for server in list(cluster)[:2]]
    [address] = check(lambda: kind(startup_nodes=given, password=SECRET))
    expected = ",".join(f"127.0.0.1:{server.port}" for server in list(cluster)[:2])
    assert address == f"redis-cluster://{expected}"


@pytest.fixture(scope="module")
def tls_cluster() -> Iterator[Cluster]:
    with Cluster(tls=True) as group:
        yield group


@each_cluster
def test_tls_of_a_cluster_is_copied(tls_cluster: Cluster, kind: Any) -> None:
    [server, *_] = tls_cluster
    settings = {"host": "127.0.0.1", "port": server.port, **encrypted(server)}
    [address] = check(lambda: kind(**settings))
    assert address.startswith("rediss-cluster://127.0.0.1:")
    files = server.settings.certificates
    assert files is not None
    url = f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={files.ca}&ssl_check_hostname=true"
    [address] = check(lambda: kind.from_url(url))
    assert address.startswith("rediss-cluster://127.0.0.1:")


def test_settings_of_a_cluster_that_cannot_be_copied_are_refused(cluster: Cluster) -> None:
    at: Any = {"host": "127.0.0.1", "port": cluster[0].port, "password": SECRET}

    def connected(connection: Any) -> None:
        connection.on_connect()

    for client, setting in (
        (redis.RedisCluster(**at, address_remap=lambda place: place), "address_remap"),
        (redis.RedisCluster(**at, redis_connect_func=connected), "redis_connect_func"),
        (redis.asyncio.RedisCluster(**at, ssl=True, ssl_ca_data=SECRET), "ssl_ca_data"),
    ):
        with pytest.raises(quorlock.ConfigError, match=f"client 1 has {setting}, which") as caught:
            quorlock.Client.from_redis(client)
        assert SECRET not in str(caught.value)


ANY: Any = redis
"""The library without its types, which are incomplete."""


class OwnConnection(redis.Connection):
    pass


@each_class
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"ssl": True, "ssl_ca_data": SECRET}, "ssl_ca_data, which cannot be copied: write the"),
        ({"ssl": True, "ssl_ca_path": "/etc/ssl/certs"}, "ssl_ca_path, which cannot be copied"),
        ({"ssl": True, "ssl_password": SECRET}, "ssl_password, which cannot be copied"),
        ({"ssl": True, "ssl_check_hostname": False}, "ssl_check_hostname=False, which cannot"),
        (
            {"ssl": True, "ssl_min_version": ssl.TLSVersion.TLSv1_3},
            "ssl_min_version above TLSv1_2, which cannot be copied: quorlock also accepts TLS 1.2",
        ),
        ({"ssl": True, "ssl_min_version": 772}, "ssl_min_version above TLSv1_2, which cannot be"),
        (
            {"ssl": True, "ssl_min_version": ssl.TLSVersion.MAXIMUM_SUPPORTED},
            "ssl_min_version above TLSv1_2, which cannot be copied",
        ),
        ({"ssl": True, "ssl_ciphers": "ECDHE+AESGCM"}, "ssl_ciphers, which cannot be copied"),
        ({"ssl": True, "ssl_validate_ocsp": True}, "ssl_validate_ocsp, which cannot be copied"),
        (
            {"ssl": True, "ssl_include_verify_flags": [ssl.VERIFY_X509_STRICT]},
            "ssl_include_verify_flags, which cannot be copied",
        ),
        ({"redis_connect_func": print}, "redis_connect_func, which cannot be copied"),
        ({"host": "redis://a"}, "a host with characters that no host name has"),
        ({"host": "a@b"}, "a host with characters that no host name has"),
        ({"password": b"s3cret\xff"}, "a password that is not UTF-8"),
        ({"password": "s3cret\ud800"}, "a password that is not UTF-8"),
        ({"unix_socket_path": "\0abstract"}, "an abstract socket, which cannot be copied"),
    ],
)
def test_setting_that_cannot_be_copied_is_refused(
    kind: Any, settings: dict[str, Any], expected: str
) -> None:
    if not set(settings) <= set(inspect.signature(kind).parameters):
        pytest.skip("the library has no such setting")
    defaults: dict[str, Any] = {"username": "app", "password": SECRET}
    if "ssl" in settings:
        defaults["ssl_check_hostname"] = True
    refused = kind(**{**defaults, **settings})
    with pytest.raises(quorlock.ConfigError) as caught:
        quorlock.Client.from_redis(kind(), refused)
    assert str(caught.value).startswith(f"client 2 has {expected}"), caught.value
    assert "s3cret" not in str(caught.value)


def test_connection_class_of_the_program_is_refused() -> None:
    pool = redis.ConnectionPool(connection_class=OwnConnection)
    with pytest.raises(quorlock.ConfigError, match=r"connection class OwnConnection of the module"):
        quorlock.Client.from_redis(redis.Redis(connection_pool=pool))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"redis://:{SECRET}@a", r"not str; pass node URLs to quorlock\.Client"),
        (b"redis://a", r"not bytes; pass node URLs to quorlock\.Client"),
        ([redis.Redis()], r"not list; pass each client .* Client\.from_redis\(\*clients\)"),
        (redis.ConnectionPool(), r"ConnectionPool; pass a client of the pool"),
        (redis.asyncio.ConnectionPool(), r"ConnectionPool; pass a client of the pool"),
        (ANY.sentinel.Sentinel([]), r"Sentinel; pass sentinel\.master_for\(service\)"),
        (ANY.cluster.ClusterNode("a", 1), r"ClusterNode; pass the RedisCluster"),
        (ANY.Redis().pubsub(), r"PubSub; for a client of another library, pass node URLs"),
        (quorlock.Client(["memory://a"]), r"quorlock\..*Client; for a client of another library"),
        (None, r"not NoneType; for a client of another library"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused(given: Any, expected: str) -> None:
    with pytest.raises(quorlock.ConfigError, match=expected) as caught:
        quorlock.Client.from_redis(given)
    assert str(caught.value).startswith("client 1 must be a client of redis-py or valkey-py, not ")
    assert "s3cret" not in str(caught.value)


def test_no_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORLOCK_NODES", "memory://a")
    with pytest.raises(quorlock.ConfigError, match="none are given"):
        quorlock.Client.from_redis()


def test_invalid_option_and_duplicate_node_are_refused() -> None:
    with pytest.raises(quorlock.ConfigError, match="ttl"):
        quorlock.Client.from_redis(redis.Redis(), ttl=-1)
    with pytest.raises(quorlock.ConfigError, match="same server"):
        quorlock.Client.from_redis(redis.Redis(), redis.asyncio.Redis())
    many = [redis.Redis(port=port) for port in range(1, 101)]
    with pytest.raises(quorlock.ConfigError, match="not 100"):
        quorlock.Client.from_redis(*many)


def test_quorlock_imports_no_redis_library() -> None:
    program = """
import sys, quorlock
try:
    quorlock.Client.from_redis(object())
except quorlock.ConfigError as error:
    print(error)
assert not {"redis", "valkey"} & set(sys.modules)
"""
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.startswith("client 1 must be a client of redis-py or valkey-py, not object")
