"""examples/cron: runs the crontab and the systemd units as they are printed.

The tests run the command lines of the files, with only the environment variables that the files
set. They replace only what depends on the machine: the addresses of the nodes and the gateway, and
the paths of the database and of the programs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.gateway import Gateway
from examples.installing import EXAMPLES, ROOT
from examples.programs import Program
from nodes import keys, steal
from servers import Servers
from waiting import wait_until

pytestmark = pytest.mark.skipif(
    not (ROOT / "cli").is_dir(), reason="there is no command line in this version"
)

CRON = EXAMPLES / "cron"
PROGRAM = "/opt/report/report.py"
QUORLOCK = Path(sys.executable).with_name("quorlock")

CRON_SETS = {"HOME": "/nonexistent", "LOGNAME": "report", "SHELL": "/bin/sh"}
"""The variables that cron(8) sets, besides PATH."""
SYSTEMD_SETS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}

Job = Callable[[], Program]
Unit = dict[str, list[tuple[str, str]]]
"""The settings of a unit by section, in order; a setting may occur more than once."""


def parse_crontab(text: str) -> tuple[dict[str, str], str]:
    """Returns the variables that a system crontab sets, and the command of its only job."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    variables = [line for line in lines if re.match(r"\w+\s*=", line)]
    (job,) = [line for line in lines if line not in variables]
    # Five fields for the time, and one for the user.
    command = job.split(None, 6)[6]
    # cron(8) ends the command at a percent sign.
    assert "%" not in command
    pairs = [variable.split("=", 1) for variable in variables]
    return {name.strip(): value.strip() for name, value in pairs}, command


def parse_unit(text: str) -> Unit:
    unit: Unit = defaultdict(list)
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.strip() and line[0] not in "#;":
            name, _, value = line.partition("=")
            unit[section].append((name, value))
    return unit


def all_of(unit: Unit, section: str, name: str) -> list[str]:
    return [value for setting, value in unit[section] if setting == name]


def one_of(unit: Unit, section: str, name: str) -> str:
    (value,) = all_of(unit, section, name)
    return value


@pytest.fixture
def here(servers: Servers, gateway: Gateway, tmp_path: Path) -> Callable[[str], str]:
    """`here(text)` replaces what depends on the machine."""
    nodes = "redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
    replaced = {
        nodes: ",".join(servers.urls),
        "http://gateway.internal:8080": gateway.url,
        "/srv/report/reports.sqlite": str(tmp_path / "database"),
        "/usr/local/bin/quorlock": str(QUORLOCK),
        PROGRAM: str(CRON / "report.py"),
    }

    def here(text: str) -> str:
        for printed, local in replaced.items():
            text = text.replace(printed, local)
        return text

    return here


@pytest.fixture
def start_in(start: Callable[..., Program]) -> Callable[[dict[str, str], list[str]], Program]:
    """`start_in(variables, command)` starts a command with only these environment variables."""

    def start_in(variables: dict[str, str], command: list[str]) -> Program:
        # The programs of the tests come before those of the machine.
        path = f"{QUORLOCK.parent}{os.pathsep}{variables['PATH']}"
        pairs = [f"{name}={value}" for name, value in {**variables, "PATH": path}.items()]
        return start(["env", "-i", *pairs, *command], "cron")

    return start_in


@pytest.fixture
def start_job(
    start_in: Callable[[dict[str, str], list[str]], Program], here: Callable[[str], str]
) -> Job:
    """`start_job()` starts the job of the crontab, as cron on one host does."""
    variables, command = parse_crontab(here((CRON / "crontab").read_text()))
    return lambda: start_in({**CRON_SETS, **variables}, ["/bin/sh", "-c", command])


@pytest.fixture
def start_unit(
    start_in: Callable[[dict[str, str], list[str]], Program], here: Callable[[str], str]
) -> Job:
    """`start_unit()` starts report.service, as systemd on one host does."""
    unit = parse_unit(here((CRON / "report.service").read_text()))
    settings = [word for line in all_of(unit, "Service", "Environment") for word in line.split()]
    variables = dict(setting.split("=", 1) for setting in settings)
    command = shlex.split(one_of(unit, "Service", "ExecStart"))
    return lambda: start_in({**SYSTEMD_SETS, **variables}, command)


def test_one_host_creates_the_report(
    start_job: Job, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    gateway.hold()
    first = start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    other = start_job()
    assert (other.end(), other.text) == (0, "")
    gateway.release()
    first.wait_for("published")
    assert first.end() == 0
    # The lock is kept for a host whose clock is late. One that is later than that finds the report.
    late = start_job()
    assert (late.end(), late.text) == (0, "")
    wait_until(lambda: keys(servers) == ["nightly-report"] * 3)
    for server in servers:
        server.command("DEL", "nightly-report")
    late = start_job()
    assert (late.end(), late.text) == (0, "")
    assert gateway.states == ["answered"]
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        assert database.execute("SELECT fence > 0 FROM reports").fetchall() == [(1,)]


def test_the_service_creates_the_report_with_its_own_environment(
    start_unit: Job, gateway: Gateway
) -> None:
    service = start_unit()
    service.wait_for("published")
    assert service.end() == 0
    assert gateway.states == ["answered"]


def test_the_unit_file_accepts_the_exit_status_of_a_held_lock(
    start_job: Job, start_unit: Job, gateway: Gateway
) -> None:
    gateway.hold()
    start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    unit = parse_unit((CRON / "report.service").read_text())
    assert one_of(unit, "Service", "SuccessExitStatus") == str(start_unit().end())


def test_a_lost_lease_ends_the_program(
    start_job: Job, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    gateway.hold()
    first = start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    steal(servers, "nightly-report")
    first.wait_for("^quorlock: .*nightly-report")
    assert first.end() == 79
    wait_until(lambda: gateway.states == ["aborted"])
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        assert database.execute("SELECT count(*) FROM reports").fetchone() == (0,)


def test_cron_reports_an_outage_of_the_nodes(
    start_job: Job, gateway: Gateway, servers: Servers
) -> None:
    servers[0].freeze()
    servers[1].freeze()
    job = start_job()
    job.wait_for("^quorlock: too few nodes")
    assert job.end() == 69
    assert len(job.output) == 1
    assert not gateway.calls


def units() -> dict[str, str]:
    """Returns all systemd units of the examples and the documentation, by their names."""
    kinds = ("service", "timer", "socket")
    files = sorted(path for kind in kinds for path in EXAMPLES.rglob(f"*.{kind}"))
    found = {path.name: path.read_text() for path in files if "node_modules" not in path.parts}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        services = [block for block in blocks if "[Service]" in block.splitlines()]
        for number, block in enumerate(services):
            found[f"{page.stem}-{number}.service"] = block
    return found


@pytest.mark.parametrize("name", units())
def test_a_unit_that_restarts_survives_an_outage(name: str) -> None:
    """By default, systemd gives up after five starts within ten seconds."""
    unit = parse_unit(units()[name])
    restarts = all_of(unit, "Service", "Restart")
    if restarts not in ([], ["no"]):
        assert all_of(unit, "Unit", "StartLimitIntervalSec") == ["0"]
        assert all_of(unit, "Service", "RestartSec")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    paths = []
    for name, text in units().items():
        path = tmp_path / name
        # systemd-analyze checks that the programs exist.
        path.write_text(re.sub("(?m)^ExecStart=.*", "ExecStart=/bin/true", text))
        paths.append(path)
    verify = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    done = subprocess.run(verify, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert not complaints
