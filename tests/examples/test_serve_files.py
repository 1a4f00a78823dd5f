"""examples/serve: the units and the sidecar fit the daemon, the image and one another."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, cargo_program
from daemons import Daemon
from docs.blocks import ROOT
from docs.test_deployment import APP, Yaml, found
from packages.containers import Instructions
from serve_load import Victim, load, memory
from servers import Servers

sys.path.append(str(ROOT / "release"))

import home

EXAMPLES = ROOT / "examples" / "serve"
SOCKET = "/run/quorlock/quorlock.sock"
GROUP = 65532


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(EXAMPLES / name)
    return parser


def pod() -> dict[str, Any]:
    value: dict[str, Any] = Yaml((EXAMPLES / "sidecar.yaml").read_text()).value(0)
    return value


def test_the_units_fit_one_another() -> None:
    service, socket = unit("quorlock.service"), unit("quorlock.socket")
    assert socket["Socket"]["ListenStream"] == SOCKET
    assert service["Unit"]["Requires"] == service["Install"]["Also"] == "quorlock.socket"
    assert service["Service"]["Type"] == "notify"
    credential = service["Service"]["LoadCredential"].split(":")[0]
    # Not %d, which systemd before version 250 does not know.
    path = f"/run/credentials/%n/{credential}"
    assert service["Service"]["Environment"] == f"QUORLOCK_NODES_FILE={path}"
    # The service ends by itself, after the default of --drain.
    assert int(service["Service"]["TimeoutStopSec"].removesuffix("s")) > 10
    # More files than the default of --max-clients.
    assert int(service["Service"]["LimitNOFILE"]) > 10_000


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for name in ("quorlock.service", "quorlock.socket"):
        text = (EXAMPLES / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/bin/quorlock", cargo_program()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "quorlock.service"],
        capture_output=True,
        text=True,
    )
    assert "quorlock" not in done.stderr, done.stderr


def test_the_command_of_the_image_serves(start_servers: Any, tmp_path: Path) -> None:
    servers: Servers = start_servers(3)
    serve, *options = Instructions.read().command
    assert serve == "serve"
    quorlock = CommandLine("cargo", servers.urls)
    with Daemon(quorlock, tmp_path / "socket", *options) as daemon:
        assert oct(daemon.path.stat().st_mode & 0o777) == "0o660"
        with daemon.connect() as client:
            client.lock("r")


def test_the_socket_exists_even_if_no_node_can_be_reached(tmp_path: Path) -> None:
    with Daemon(CommandLine("cargo", ["redis://127.0.0.1:1"]), tmp_path / "socket") as daemon:
        with daemon.connect() as client:
            assert client.ask("PING") == "PONG"


def test_the_application_sees_the_socket_of_the_sidecar() -> None:
    spec = pod()["spec"]
    (sidecar,), (application,) = spec["initContainers"], spec["containers"]
    # An init container that always restarts is a sidecar: it starts first, and ends last.
    assert sidecar["restartPolicy"] == "Always"
    mounts = [sidecar["volumeMounts"], application["volumeMounts"]]
    assert mounts == [[{"name": "quorlock", "mountPath": str(Path(SOCKET).parent)}]] * 2
    assert [volume["name"] for volume in spec["volumes"]] == ["quorlock"]
    # The entry point of the image is the command, and the image has no other program for probes.
    instructions = Instructions.read()
    assert sidecar["args"][: len(instructions.command)] == instructions.command
    assert "command" not in sidecar
    assert not [name for name in sidecar if name.endswith("Probe")]
    assert sidecar["image"].partition(":")[0] == home.home().image
    assert instructions.environment["QUORLOCK_SOCKET"] == SOCKET
    (reference,) = [value["valueFrom"] for value in sidecar["env"] if "valueFrom" in value]
    secret = found(APP, "Secret")
    assert reference["secretKeyRef"]["name"] == secret["metadata"]["name"]
    assert reference["secretKeyRef"]["key"] in secret["stringData"]
    (variable,) = application["env"]
    assert (variable["name"], variable["value"]) == ("QUORLOCK_SOCKET", SOCKET)
    # Both have the group of the socket, whose mode is 0660.
    context = spec["securityContext"]
    assert context["fsGroup"] == context["runAsUser"] == GROUP
    assert instructions.user == f"{GROUP}:{GROUP}"
    # The daemon drains for 10 s by default.
    assert spec["terminationGracePeriodSeconds"] > 10


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_clients_of_the_sidecar_cannot_exceed_its_memory(
    start_servers: Any, tmp_path: Path
) -> None:
    servers: Servers = start_servers(3)
    (sidecar,) = pod()["spec"]["initContainers"]
    limit = int(sidecar["resources"]["limits"]["memory"].removesuffix("Mi"))
    serve, *options = sidecar["args"]
    assert serve == "serve"
    with Daemon(CommandLine("cargo", servers.urls), tmp_path / "socket", *options) as daemon:
        victim = Victim(daemon)
        with load(daemon.path, "send_half_requests", "lock_long_names", "ask_for_the_status"):
            victim.hold(5)
        assert memory(daemon) < limit
