"""What servers, holders, resources, files and arguments contain does not control the terminal, and
secrets in the wrong place are not shown. Variables of the environment are named in errors."""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import CommandLine
from servers import Servers

ESCAPE = "\x1b]0;pwned\x07\x1b[31m"
HOSTILE = f"a{ESCAPE}\x7f\x9b\u202e\u2066\u200e\u2028\u2029\u061c\ufeff\U000e0001\x08z"
FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
SOON = ["--node-timeout", "200ms", "--connect-timeout", "1s"]


class Hostile(socketserver.StreamRequestHandler):
    """Answers requests of RESP as a server does whose operator is hostile."""

    def handle(self) -> None:
        while words := self.words():
            self.wfile.write(self.answer(words))

    def words(self) -> list[bytes]:
        first = self.rfile.readline()
        if not first.startswith(b"*"):
            return []
        words = []
        for _ in range(int(first[1:])):
            length = int(self.rfile.readline()[1:])
            words.append(self.rfile.read(length + 2)[:-2])
        return words

    def answer(self, words: list[bytes]) -> bytes:
        if words[0] == b"HELLO" and not self.server.refuses:  # type: ignore[attr-defined]
            return b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
        if words[0] == b"INFO":
            fields = ("redis_version", "role", "run_id", "maxmemory_policy", "os", "master_replid")
            lines = [f"{field}:{HOSTILE}".replace("\x0b", "") for field in fields]
            return bulk("\r\n".join([*lines, "uptime_in_seconds:99999", ""]))
        if words[0] == b"TIME":
            return b"*2\r\n$10\r\n1795298783\r\n$1\r\n0\r\n"
        if words[0] == b"CONFIG":
            return bulk_map({"appendfsync": HOSTILE, "maxmemory-policy": HOSTILE})
        text = f"ERR {HOSTILE}\r\nsecond{ESCAPE} line".encode()
        return b"!%d\r\n%s\r\n" % (len(text), text)


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode())


def bulk_map(fields: dict[str, str]) -> bytes:
    parts = [bulk(part) for field in fields.items() for part in field]
    return b"%%%d\r\n%s" % (len(fields), b"".join(parts))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    refuses = False


@contextmanager
def hostile(*, refuses: bool = False) -> Iterator[str]:
    """A hostile server. Yields its URL."""
    with Server(("127.0.0.1", 0), Hostile) as server:
        server.refuses = refuses
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def check(done: subprocess.CompletedProcess[str], *, is_json: bool = False) -> None:
    """Checks what a command has printed."""
    for text in (done.stdout, done.stderr):
        assert not FORBIDDEN.search(text), (done.args, text)
    for line in (done.stdout + done.stderr).splitlines() if is_json else []:
        json.loads(line)


COMMANDS = [
    ["status", "r"],
    ["status", "--limit", "2", "r"],
    ["list"],
    ["release", "--yes", "r"],
    ["doctor"],
    ["doctor", "--require", "majority"],
    ["run", "-n", "r", "--", "true"],
    ["run", "-v", "--wait", "100ms", "--outage", "100ms", "r", "--", "true"],
    ["run", "--limit", "2", "-n", "r", "--", "true"],
    ["run", "--detach", "-n", "r", "--", "true"],
    ["acquire", "-n", "r"],
    ["bench", "-d", "10ms"],
]


@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refuses"])
def test_a_hostile_server_does_not_control_the_terminal(
    quorlock: CommandLine, *, refuses: bool
) -> None:
    with hostile(refuses=refuses) as url:
        quorlock.environment["QUORLOCK_NODES"] = url
        for command in COMMANDS:
            done = quorlock.run(*SOON, *command)
            check(done)
            assert done.returncode or "doctor" in command, command
            check(quorlock.run("--json", *SOON, *command), is_json=True)
        # The texts are shown, without what is hostile in them.
        done = quorlock.run(*SOON, "doctor")
        assert "pwned" in done.stdout
        done = quorlock.run(*SOON, "status", "r")
        assert "pwned" in done.stdout


def test_names_and_arguments_do_not_control_the_terminal(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    resource = HOSTILE
    token = "0123456789abcdef0123456789abcdef01234567"
    for server in servers:
        server.command("SET", resource, f"{token};{HOSTILE}", "PX", 600_000)
        server.command("SET", "other" + resource, HOSTILE, "PX", 600_000)
    for command in [
        ["status", resource, "other" + resource],
        ["list"],
        ["list", resource],
        ["list", "none" + resource],
        ["run", "-v", "--wait", "50ms", resource, "--", "true"],
        ["run", "free" + resource, "--", "true"],
        ["run", "x", "--", f"/no/such{HOSTILE}"],
        ["acquire", "-n", resource],
        ["release", "--yes", "other" + resource],
        ["release", "--yes", resource],
        ["status", "--limit", "2", resource],
        ["status", "--ttl", HOSTILE, "r"],
        ["status", "--holder" + HOSTILE, "r"],
        ["run", "--holder", HOSTILE, "r", "--", "true"],
        ["man", HOSTILE],
        [HOSTILE],
        ["--nodes-file", f"/no/such{HOSTILE}", "doctor"],
        ["--node", f"redis://127.0.0.1:1{HOSTILE}", "doctor"],
        ["run", "--adopt", "--lease-file", f"/no/such{HOSTILE}", "--", "true"],
        ["serve", "--socket", str(tmp_path / "none" / HOSTILE)],
        ["serve", "--socket", str(tmp_path / "s"), "--owner", HOSTILE],
    ]:
        done = quorlock.run(*command)
        check(done)
        check(quorlock.run("--json", *command), is_json=True)
    for variable in ["TTL", "WAIT", "RESTART_GUARD", "DRIFT_FACTOR", "NODES_FILE", "HOLDER"]:
        environment = {f"QUORLOCK_{variable}": HOSTILE}
        check(quorlock.run("run", "-n", "r", "--", "true", environment=environment))


def test_json_has_the_exact_names(quorlock: CommandLine, servers: Servers) -> None:
    for server in servers:
        server.command("SET", HOSTILE, "x", "PX", 600_000)
    done = quorlock.run("status", "--json", HOSTILE)
    check(done, is_json=True)
    (status,) = json.loads(done.stdout)
    assert status["resource"] == HOSTILE


SECRET = "SECRET"
URL = f"redis://user:{SECRET}@127.0.0.1:1"
URLS = [
    URL,
    f"redis://:{SECRET}",
    f"unix:///run/redis.sock?pass={SECRET}",
    f"redis://a,redis://:{SECRET}@b",
    f"user:{SECRET}@127.0.0.1:1",
    f"redis://:{SECRET} {SECRET}'{SECRET}@h",
]
TEXT = f"quorlock-lease-1:{SECRET}"
PLACES = [
    ["--nodes-file", "{}", "doctor"],
    ["--nodes-file={}", "doctor"],
    ["--ttl", "{}", "doctor"],
    ["--ttl={}", "doctor"],
    ["--drift-factor", "{}", "doctor"],
    ["doctor", "{}"],
    ["doctor", "--require", "{}"],
    ["{}"],
    ["man", "{}"],
    ["completions", "{}"],
    ["list", "--limit", "{}"],
    ["run", "-w{}", "r", "--", "true"],
    ["run", "-E{}", "r", "--", "true"],
    ["run", "-nw{}", "r", "--", "true"],
    ["run", "--limit", "{}", "r", "--", "true"],
    ["run", "r", "--", "{}"],
    ["run", "--adopt", "--lease-file", "{}", "--", "true"],
    ["run", "--adopt", "--lease-file={}", "--", "true"],
    ["extend", "--lease", "{}"],
    ["release", "--lease", "{}"],
    ["serve", "--mode", "{}"],
    ["serve", "--socket", "none/{}"],
    ["serve", "--socket", "/tmp/none", "--owner", "{}"],
    ["serve", "--max-clients", "{}"],
]


def test_secrets_in_the_wrong_place_are_not_shown(quorlock: CommandLine, tmp_path: Path) -> None:
    for secret in [*URLS, TEXT, TEXT.replace("lease", "handover")]:
        for place in PLACES:
            for flags in ([], ["--json"]):
                command = [*flags, *(word.replace("{}", secret) for word in place)]
                done = subprocess.run(
                    [*quorlock.program, *command],
                    env=quorlock.environment,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode, command
                assert SECRET not in done.stdout + done.stderr, command


@pytest.mark.parametrize(
    "variable",
    [
        "NODES",
        "NODES_FILE",
        "RESTART_GUARD",
        "DRIFT_FACTOR",
        "NODE_TIMEOUT",
        "CONNECT_TIMEOUT",
        "TTL",
        "WAIT",
        "OUTAGE",
        "CONFLICT_EXIT_CODE",
        "MAX_HOLD",
        "KEEP",
        "KILL_AFTER",
    ],
)
def test_a_wrong_variable_is_named_and_not_shown(quorlock: CommandLine, variable: str) -> None:
    name = f"QUORLOCK_{variable}"
    for secret in [*URLS[:-1], TEXT]:
        if variable == "NODES" and secret == f"redis://a,redis://:{SECRET}@b":
            continue  # It is right.
        environment = {name: secret}
        done = quorlock.run("run", "-n", "r", "--", "true", environment=environment)
        assert done.returncode, (name, secret)
        assert SECRET not in done.stdout + done.stderr
        if variable != "NODES":
            assert done.returncode == 64
            assert name in done.stderr
            assert "--" + variable.lower().replace("_", "-") not in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TTL", "48h"),
        ("TTL", "1"),
        ("RESTART_GUARD", "48h"),
        ("RESTART_GUARD", "1"),
        ("DRIFT_FACTOR", "0.9"),
        ("NODE_TIMEOUT", "2h"),
        ("CONNECT_TIMEOUT", "0"),
        ("WAIT", "-1s"),
        ("OUTAGE", "-1s"),
        ("HOLDER", "x" * 129),
        ("MAX_HOLD", "1ms"),
        ("KEEP", "1ms"),
        ("KILL_AFTER", "1h"),
        ("CONFLICT_EXIT_CODE", "256"),
    ],
)
def test_an_error_about_a_variable_names_the_variable(
    quorlock: CommandLine, variable: str, value: str
) -> None:
    name, flag = f"QUORLOCK_{variable}", "--" + variable.lower().replace("_", "-")
    command = ["run", "-n", "r", "--", "true"]
    if variable == "WAIT":
        command.remove("-n")
    done = quorlock.run(*command, environment={name: value})
    assert done.returncode == 64
    assert name in done.stderr
    assert flag not in done.stderr
    # A flag takes precedence, and is named.
    done = quorlock.run("run", f"{flag}={value}", *command[1:], environment={name: value})
    assert done.returncode == 64
    assert flag in done.stderr
    assert name not in done.stderr


def test_an_empty_variable_counts_as_not_set(quorlock: CommandLine, servers: Servers) -> None:
    names = ["NODES_FILE", "KEY_PREFIX", "RESTART_GUARD", "NODE_TIMEOUT", "CONNECT_TIMEOUT"]
    names += ["DRIFT_FACTOR", "TTL", "WAIT", "OUTAGE", "HOLDER", "CONFLICT_EXIT_CODE", "MAX_HOLD"]
    names += ["KEEP", "KILL_AFTER", "SOCKET"]
    empty = {f"QUORLOCK_{name}": "" for name in names}
    script = "exec echo got"
    done = quorlock.run("run", "r", "--", "sh", "-c", script, environment=empty)
    assert (done.returncode, done.stdout) == (0, "got\n"), done.stderr
    # The default name of the holder.
    assert re.search(r" as \S+:\d+ ", done.stderr), done.stderr
    assert quorlock.run("release", "--yes", "r", environment=empty).returncode == 0
    # An acquire has failed.
    for command in ["extend", "release"]:
        done = quorlock.run(command, environment={"QUORLOCK_LEASE": ""})
        assert (done.returncode, done.stdout) == (64, "")
        assert "QUORLOCK_LEASE" in done.stderr


def test_settings_of_a_fleet_apply_to_the_command(quorlock: CommandLine, servers: Servers) -> None:
    quorlock.environment["QUORLOCK_RESTART_GUARD"] = "1h"
    # The servers have just started.
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 69
    assert quorlock.run("--restart-guard", "off", "run", "-n", "r", "--", "true").returncode == 0
    done = quorlock.run("doctor")
    assert "restart_guard: 1 h (QUORLOCK_RESTART_GUARD)" in done.stdout
    assert "nodes: 3 (QUORLOCK_NODES)" in done.stdout
    flags = ["--node", servers.urls[0], "--restart-guard", "30s", "--key-prefix", "x:"]
    settings = json.loads(quorlock.run("doctor", "--json", *flags).stdout)["settings"]
    assert {setting["name"]: (setting["value"], setting["source"]) for setting in settings} == {
        "nodes": ("1", "--node"),
        "restart_guard": ("30 s", "--restart-guard"),
        "key_prefix": ("x:", "--key-prefix"),
        "drift_factor": ("0.01", "default"),
    }


def test_the_text_of_a_lease_in_place_of_a_resource_is_refused(
    quorlock: CommandLine, servers: Servers
) -> None:
    text = quorlock.run("acquire", "--ttl", "5m", "r").stdout.strip()
    for command in [
        ["release", text],
        ["release", "--yes", text],
        ["status", text],
        ["status", "--limit", "2", text],
        ["list", text],
        ["run", "-n", text, "--", "true"],
        ["run", "-n", "--limit", "2", text, "--", "true"],
        ["run", "-n", "--shared-for", text, "r2", "--", "true"],
        ["acquire", "-n", text],
        ["watch", text],
    ]:
        for flags in ([], ["--json"]):
            done = quorlock.run(*flags, *command, environment={"QUORLOCK_LEASE": text})
            assert done.returncode == 64, command
            assert text not in done.stdout + done.stderr
            assert text[20:40] not in done.stdout + done.stderr
            assert not done.stdout
    assert "quorlock release" in quorlock.run("release", text).stderr
    # The lock is still held, and the text releases it.
    assert quorlock.run("status", "r").returncode == 1
    assert quorlock.run("release", environment={"QUORLOCK_LEASE": text}).returncode == 0
    assert quorlock.run("status", "r").returncode == 0


def test_help_names_the_variables_of_a_fleet(quorlock: CommandLine) -> None:
    shown = " ".join(quorlock.run("--help").stdout.split())
    for name in ["QUORLOCK_RESTART_GUARD", "QUORLOCK_KEY_PREFIX", "QUORLOCK_DRIFT_FACTOR"]:
        assert f"[env: {name}]" in shown
