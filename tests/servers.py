"""Real Redis (or Valkey) servers for the tests of every language: start, freeze, kill, restart.

As a library:

    with Servers(5) as servers:
        client = connect(servers.urls)
        servers[0].freeze()
        servers[1].kill()
        assert servers[2].command("GET", "key") == "value"

`Sentinel` is a master with replicas and sentinels, `Cluster` a Redis Cluster. The code is in
`fleet/`; other tests import from this module only.

As a program, `python3 tests/servers.py` reads one JSON object per line on stdin and answers each
with one JSON line on stdout, {"ok": result} or {"error": "why"}:

    {"start": 5}                           [{"url": ..., "port": ..., "pid": ...}, ...], with the
                                           options of `Servers`: "args": [...], "tls": "valid", ...
    {"start_sentinel": true}               the same, with "seeds" (all sentinels), "seed" (the
                                           first) and "last_seed"; the options of `Sentinel`
    {"start_cluster": true}                the same, but the seeds are the masters; the options of
                                           `Cluster`
    {"freeze": 2} {"thaw": 2} {"kill": 2}  null
    {"restart": 2}                         {"url": ..., "port": ..., "pid": ...}
    {"command": [2, "GET", "key"]}         the reply
    {"flush": true}                        null; all keys are deleted
    {"fail_over": true}                    the number of the new master (Sentinel)
    {"fail_over": 0}                       the number of the server that replaces master 0 (Cluster)
    {"begin_move": ["key", 1]}             null; the key's slot begins to migrate to server 1
    {"end_move": ["key", 1]}               null; the slot's migration to server 1 is complete
    {"proxy": 2}                           {"url": ..., "port": ..., "id": 0}: see proxy.py
    {"proxy_mode": [0, "drop_replies"]}    null
    {"proxy_delay": [0, 0.5]}              null, seconds
    {"keep_logs": true}                    the directory whose logs will not be deleted
    {"stop": true}                         null, after cleaning up; then the program ends

With TLS, the description of a server also has the paths of certificates: "ca", "cert" and "key",
which are valid, and "other_ca", "other_cert" and "other_key", which the servers do not trust. An
error that begins with "Unavailable" names what this machine lacks.

The program also cleans up and ends at the end of stdin, on SIGTERM and on SIGINT.

The server program is $REDIS_SERVER, or else redis-server or valkey-server from the PATH.
"""

from fleet.cluster import Cluster
from fleet.errors import ServerError, Unavailable
from fleet.independent import Servers
from fleet.program import main
from fleet.resp import Argument, Reply, ServerReplyError, encode_command, read_reply
from fleet.sentinel import Sentinel
from fleet.server import Server, find_binary, reserve_port

__all__ = [
    "Argument",
    "Cluster",
    "Reply",
    "Sentinel",
    "Server",
    "ServerError",
    "ServerReplyError",
    "Servers",
    "Unavailable",
    "encode_command",
    "find_binary",
    "read_reply",
    "reserve_port",
]

if __name__ == "__main__":
    main()
