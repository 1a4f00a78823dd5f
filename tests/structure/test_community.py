"""The templates of issues and pull requests, SECURITY and MAINTAINING agree with the project."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from docs.test_deployment import Yaml
from packages.sandboxes import CRATES
from structure import rooms

GITHUB = rooms.ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").iterdir() if path.name != "config.yml")
MAINTAINING = (rooms.ROOT / "MAINTAINING.md").read_text()
MAKEFILE = (rooms.ROOT / "Makefile").read_text()
RELEASE = (GITHUB / "workflows" / "release.yml").read_text()


def form(name: str) -> dict[str, Any]:
    lines = (GITHUB / "ISSUE_TEMPLATE" / name).read_text()
    value: dict[str, Any] = Yaml(lines).value(0)
    return value


def fields(name: str) -> dict[str, Any]:
    """Returns the fields of a form by their ids."""
    return {field["id"]: field for field in form(name)["body"] if field["type"] != "markdown"}


@pytest.mark.parametrize("name", [path.name for path in FORMS])
def test_a_form_is_one_that_github_accepts(name: str) -> None:
    value = form(name)
    assert value.keys() == {"name", "description", "labels", "body"}
    ids = [field["id"] for field in value["body"] if field["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
    for field in value["body"]:
        assert field["type"] in ("markdown", "textarea", "input")
        attributes = field["attributes"]
        if field["type"] == "markdown":
            assert attributes["value"]
        else:
            assert attributes["label"]
            assert attributes.keys() <= {"label", "description", "placeholder", "render"}
        assert field.keys() <= {"type", "id", "attributes", "validations"}


def test_a_bug_report_asks_for_the_doctor_and_the_version() -> None:
    asked = fields("bug.yml")
    assert "quorlock doctor --json" in asked["doctor"]["attributes"]["label"]
    assert asked["doctor"]["attributes"]["render"] == "json"
    assert "quorlock --version" in asked["quorlock"]["attributes"]["description"]
    for name in ("happened", "reproduce", "doctor", "quorlock", "platform"):
        assert asked[name]["validations"] == {"required": True}


def test_vulnerabilities_are_reported_in_private() -> None:
    private = "/security/advisories/new"
    for path in ["SECURITY.md", "CODE_OF_CONDUCT.md", ".github/ISSUE_TEMPLATE/bug.yml"]:
        assert private in (rooms.ROOT / path).read_text(), path
    assert next(link["name"] for link in form("config.yml")["contact_links"]) == "Vulnerability"


def test_the_supported_version_is_the_current_one() -> None:
    text = (rooms.ROOT / "SECURITY.md").read_text()
    [(version, supported)] = re.findall(r"^\| (\d+\.\d+)(?: \([^)]*\))? \| (\w+) \|$", text, re.M)
    workspace = tomllib.loads((rooms.ROOT / "Cargo.toml").read_text())["workspace"]
    assert workspace["package"]["version"].startswith(f"{version}.")
    assert supported == "yes"


def section(title: str) -> str:
    return MAINTAINING.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_a_release_has_ten_steps() -> None:
    steps = re.findall(r"^(\d+)\. \*\*", section("Release a version"), re.MULTILINE)
    assert steps == [str(number) for number in range(1, 11)]


def test_the_commands_of_maintainers_exist() -> None:
    for target in re.findall(r"`make ([\w-]+)", MAINTAINING):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    workflows = re.findall(r"(?:gh workflow run |workflow `)([\w-]+\.yml)", MAINTAINING)
    assert "release.yml" in workflows
    for name in workflows:
        assert (GITHUB / "workflows" / name).exists(), name
    for name in re.findall(r"`(release/[\w.]+)`", MAINTAINING):
        assert (rooms.ROOT / name).exists(), name


def test_every_place_of_a_release_can_be_withdrawn() -> None:
    withdrawal = section("Withdraw a mistake")
    places = re.findall(r"^    name: (.*)\n    needs: (?:provenance|\[pypi)", RELEASE, re.MULTILINE)
    assert len(places) == 5
    rows = {row.lower() for row in re.findall(r"^\| ([^|]+) \|", withdrawal, re.MULTILINE)}
    assert {place.lower().removesuffix(" release") for place in places} <= rows
    for crate in CRATES:
        assert f"`{crate}`" in withdrawal


def test_only_jobs_that_a_maintainer_approves_can_publish() -> None:
    jobs = re.split(r"^  (?=[\w-]+:\n)", RELEASE.partition("\njobs:\n")[2], flags=re.MULTILINE)
    for job in jobs:
        if re.search(r"registry\.|PyPI trusts|npm publish|cargo publish|packages: write", job):
            assert "environment: release\n" in job
            assert "if: github.ref_type == 'tag'\n" in job
