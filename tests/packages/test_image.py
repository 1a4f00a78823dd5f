"""The image of the command: its root file system, and programs that run in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import image
import pytest
from command_line import finish
from daemons import Connection
from packages.archives import is_published
from packages.containers import CONTAINERFILE, Image, Instructions
from packages.sandboxes import ROOT
from servers import Servers
from waiting import wait_until

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"

runs = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root of Linux can unshare all of it"
)


@pytest.fixture(scope="module")
def packed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system, as the Containerfile adds it."""
    directory = tmp_path_factory.mktemp("image")
    certificates = directory / "authorities"
    certificates.write_text("the certificates of public authorities\n")
    image.write(archive, directory / "root.tar", certificates)
    return directory / "root.tar"


@pytest.fixture(scope="module")
def unpacked(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, with libraries if its program is not compiled as it is published."""
    found = Image(tmp_path_factory.mktemp("root"), packed)
    if not is_published():
        found.add_libraries()
    return found


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The directory of the socket, with the owner and the mode that the image gives it."""
    owner, mode = image.DIRECTORIES["run/quorlock"]
    directory = tmp_path / "volume"
    directory.mkdir()
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    return directory


def run(
    unpacked: Image, volume: Path, servers: Servers | None, *command: str
) -> subprocess.CompletedProcess[str]:
    """Runs the entry point with this command in a new container."""
    nodes = {"QUORLOCK_NODES": ",".join(servers.urls)} if servers else {}
    return finish(unpacked.start([*unpacked.instructions.entry_point, *command], volume, nodes))


def first_process(container: subprocess.Popen[str]) -> int:
    """Returns the process that is the first one in its container."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    wait_until(lambda: bool(children.read_text().split()))
    return int(children.read_text().split()[0])


@contextmanager
def serving(unpacked: Image, volume: Path, servers: Servers) -> Iterator[subprocess.Popen[str]]:
    """The container that starts without arguments, once clients can connect."""
    instructions = unpacked.instructions
    command = [*instructions.entry_point, *instructions.command]
    container = unpacked.start(command, volume, {"QUORLOCK_NODES": ",".join(servers.urls)})
    with container:
        assert container.stdout
        ready = container.stdout.readline()
        assert ready == f"listening on {instructions.environment['QUORLOCK_SOCKET']}\n", finish(
            container
        )
        yield container
        container.kill()


def test_the_image_has_one_program_and_no_shell(packed: Path) -> None:
    with tarfile.open(packed) as archive:
        members = {member.name: member for member in archive}
    programs = [name for name, member in members.items() if member.isfile() and member.mode & 0o111]
    assert programs == [Instructions.read().entry_point[0].lstrip("/")]
    assert {name for name, member in members.items() if member.uid} == {"run/quorlock"}
    documents = {f"{image.DOCUMENTS}/{name}" for name in image.KEPT}
    files = {name for name, member in members.items() if member.isfile()}
    assert files == {image.PROGRAM, image.CERTIFICATES, *documents}


def test_the_containerfile_fits_the_root() -> None:
    instructions = Instructions.read()
    assert instructions.user == f"{image.USER}:{image.USER}"
    assert instructions.entry_point == [f"/{image.PROGRAM}"]
    assert instructions.volume == "/run/quorlock"
    assert instructions.environment["QUORLOCK_SOCKET"].startswith(f"{instructions.volume}/")
    text = CONTAINERFILE.read_text()
    # Docker Swarm replaces an unhealthy container, which would end all leases of the daemon.
    assert "HEALTHCHECK" not in text
    assert "\nFROM scratch\n" in text
    assert "\nRUN " not in text
    for processor in ("amd64", "arm64"):
        assert f"root-{processor}.tar" in WORKFLOW.read_text()


@runs
def test_the_program_of_the_image_runs_in_its_root(unpacked: Image, volume: Path) -> None:
    done = run(unpacked, volume, None, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("quorlock ")


@runs
def test_the_container_serves_on_its_volume(
    unpacked: Image, volume: Path, start_servers: Any
) -> None:
    servers: Servers = start_servers(3)
    with serving(unpacked, volume, servers) as container:
        socket = volume / "quorlock.sock"
        assert (socket.stat().st_uid, oct(socket.stat().st_mode & 0o777)) == (image.USER, "0o660")
        with Connection(socket) as client:
            client.lock("r")
            assert servers[0].command("EXISTS", "r") == 1
            os.kill(first_process(container), signal.SIGTERM)
            wait_until(lambda: not socket.exists())
        assert container.wait() == 0
    assert [server.command("EXISTS", "r") for server in servers] == [0] * 3


@runs
def test_a_probe_in_the_container_succeeds_while_a_majority_can_vote(
    unpacked: Image, volume: Path, start_servers: Any
) -> None:
    servers: Servers = start_servers(3)
    check = ["doctor", "--quiet", "--require", "majority"]
    servers[0].kill()
    assert run(unpacked, volume, servers, *check).returncode == 0
    servers[1].kill()
    assert run(unpacked, volume, servers, *check).returncode == 69


@runs
def test_the_container_runs_a_program_of_a_derived_image(
    unpacked: Image, volume: Path, start_servers: Any
) -> None:
    servers: Servers = start_servers(3)
    # The only program that surely runs there.
    done = run(unpacked, volume, servers, "run", "job", "--", "quorlock", "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("quorlock ")
    assert "released job" in done.stderr


@runs
def test_a_heartbeat_needs_a_writable_directory_only_for_its_socket(
    unpacked: Image, volume: Path, start_servers: Any
) -> None:
    servers: Servers = start_servers(3)
    command = ["run", "--heartbeat-timeout", "10s", "job", "--", "quorlock", "--version"]
    refused = run(unpacked, volume, servers, *command)
    assert refused.returncode != 0
    container = unpacked.start(
        [*unpacked.instructions.entry_point, *command],
        volume,
        {"QUORLOCK_NODES": ",".join(servers.urls), "TMPDIR": unpacked.instructions.volume},
    )
    done = finish(container)
    assert done.returncode == 0, done.stderr
