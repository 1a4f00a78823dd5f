"""The workflows agree with one another, with the Makefile and with what the documentation says."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from structure import rooms

FILES = sorted((rooms.ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.name: path.read_text() for path in FILES}
MAKEFILE = (rooms.ROOT / "Makefile").read_text()

each_workflow = pytest.mark.parametrize("name", WORKFLOWS)


def jobs(text: str) -> dict[str, str]:
    """Returns the text of each job of a workflow."""
    parts = re.split(r"^  ([\w-]+):\n", text.partition("\njobs:\n")[2], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_jobs_are_found() -> None:
    assert list(jobs("on: push\njobs:\n  one:\n    a: b\n  two:\n    c: d\n")) == ["one", "two"]


def test_an_action_has_one_version_in_all_workflows() -> None:
    found = defaultdict(set)
    for text in WORKFLOWS.values():
        for action in re.findall(r"uses: ([^.\s].*)", text):
            match = re.fullmatch(r"([\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", action)
            assert match, action
            # The actions of one repository have one version, too.
            repository = "/".join(match[1].split("/")[:2])
            found[repository].add((match[2], match[3]))
    assert {action for action, versions in found.items() if len(versions) > 1} == set()


@each_workflow
def test_each_job_ends_by_itself(name: str) -> None:
    for job, text in jobs(WORKFLOWS[name]).items():
        # A called workflow limits its own jobs.
        assert "timeout-minutes: " in text or "    uses: ./" in text, job


@each_workflow
def test_a_workflow_starts_with_what_it_is_for_and_grants_nothing_to_all_jobs(name: str) -> None:
    text = WORKFLOWS[name]
    assert text.startswith("# ")
    assert "\npermissions:\n  contents: read\n\n" in text


@each_workflow
def test_what_a_workflow_runs_exists(name: str) -> None:
    text = re.sub(r"#.*", "", WORKFLOWS[name])
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    scripts = re.findall(r"(?:python3?|pytest[^&\n]*?) ((?:release|tests|bench)/[\w/.-]+)", text)
    scripts += re.findall(r"--requirement ([\w./-]+)", text)
    for script in scripts:
        assert (rooms.ROOT / script).exists(), script


def test_all_workflows_use_one_compiler() -> None:
    versions = [re.findall(r"RUST_VERSION: (\S+)", text) for text in WORKFLOWS.values()]
    assert len({version for found in versions for version in found}) == 1
    for name, text in WORKFLOWS.items():
        assert ("$RUST_VERSION" in text) <= ("\n  RUST_VERSION: " in text), name


@pytest.mark.parametrize(("job", "row"), [("python", "Python"), ("node", "Node.js")])
def test_the_documentation_names_the_versions_that_ci_tests(job: str, row: str) -> None:
    page = (rooms.ROOT / "docs" / "compatibility.md").read_text()
    [tested] = re.findall(rf"^\| {re.escape(row)} \|[^|]*\| ([^|]*) \|$", page, re.MULTILINE)
    [listed] = re.findall(r"version: \[(.*)\]", jobs(WORKFLOWS["ci.yml"])[job])
    wanted = [version.strip("' ") for version in listed.split(",")]
    # The first version is that of the suites.
    assert re.findall(r"\b\d+(?:\.\d+)?t?\b", tested)[1:] == wanted


def test_the_linters_of_workflows_are_part_of_make_lint() -> None:
    assert re.search(r"^lint: .*\blint-workflows\b", MAKEFILE, re.MULTILINE)
    recipe = MAKEFILE.partition("\nlint-workflows:")[2].partition("\n\n")[0]
    assert "/actionlint " in recipe
    # Otherwise zizmor passes if it cannot parse a file.
    assert "--strict-collection" in recipe


def test_only_the_release_workflow_publishes() -> None:
    publishing = r"packages: write|gh release|npm publish|cargo publish(?! --workspace.* --dry-run)"
    found = [name for name, text in WORKFLOWS.items() if re.search(publishing, text)]
    assert found == ["release.yml"]
