"""Code on pages that is copied from files is equal to these files, and nothing else is included.

`python -m docs.files --write`, run in `tests`, updates the copies of whole files.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from docs.blocks import PACKAGES, ROOT, Copy, copies, name, pages
from docs.files import is_current, update

COPIES = [copy for page in pages() for copy in copies(page)]
EXAMPLES = ["apscheduler", "bullmq", "celery", "cron", "django", "express", "fastapi", "fastify"]
EXAMPLES += ["leader-election", "nestjs", "node-cron", "once", "semaphores", "worker"]
START = [ROOT / path for path in ("README.md", "docs/index.md", "docs/getting-started.md")]
FILE = "demo/worker.py"
TEXT = (Path(__file__).resolve().parents[2] / FILE).read_text()
INDENTED = re.search(r"(?:^    .+\n){2,}", TEXT, re.MULTILINE)
assert INDENTED is not None
PART = "".join(line[4:] + "\n" for line in INDENTED[0].splitlines())
"""A few consecutive lines of the file, less indented than there."""


def copy_of(directory: Path, code: str, part: str = "") -> Copy:
    page = directory / "page.md"
    page.write_text(f"<!-- file: {FILE}{part} -->\n```python\n{code}```\nend\n")
    (copy,) = copies(page)
    return copy


@pytest.mark.parametrize("copy", COPIES, ids=str)
def test_a_copy_is_equal_to_its_file(copy: Copy) -> None:
    assert is_current(copy), f"{copy} differs from {name(copy.file)}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_page_can_be_read_without_the_site(page: Path) -> None:
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        assert "--8<--" not in line, f"{name(page)}:{number} includes a file"
        assert not line.startswith(":::"), f"{name(page)}:{number} is a directive"


@pytest.mark.parametrize("page", [*START, *PACKAGES], ids=name)
def test_a_quick_start_names_only_servers_that_its_reader_has(page: Path) -> None:
    assert "10.0.0." not in page.read_text()


def test_the_readme_has_at_most_1000_words() -> None:
    assert len(START[0].read_text().split()) <= 1_000


@pytest.mark.parametrize(
    ("code", "part", "current"),
    [
        (TEXT, "", True),
        (f"{TEXT}\n", "", True),
        (TEXT.replace("import", "impart", 1), "", False),
        (PART, "", False),
        (PART, " (part)", True),
        (INDENTED[0], " (part)", True),
        (f"{PART}pass\n", " (part)", False),
        ("", " (part)", False),
    ],
    ids=["whole", "blank line", "changed", "incomplete", "part", "indented", "longer", "empty"],
)
def test_a_copy_that_differs_is_found(code: str, part: str, current: bool, tmp_path: Path) -> None:
    assert is_current(copy_of(tmp_path, code, part)) is current


def test_an_update_replaces_copies_of_whole_files(tmp_path: Path) -> None:
    page = copy_of(tmp_path, "old\n").page
    assert update(page)
    assert page.read_text() == f"<!-- file: {FILE} -->\n```python\n{TEXT}```\nend\n"
    assert not update(page)
    part = copy_of(tmp_path, "old\n", " (part)").page
    assert not update(part)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_command_of_an_example_sets_the_variables_it_needs(example: str) -> None:
    listed = subprocess.check_output(
        ["git", "ls-files", f"examples/{example}"], cwd=ROOT, text=True
    )
    sources = "".join((ROOT / path).read_text() for path in listed.splitlines())
    needed = re.findall(r"environ\[\"(\w+)\"\]|process\.env\.(\w+)\b(?! \?\?)", sources)
    for variable in {python or node for python, node in needed} - {"QUORLOCK_FENCE"}:
        assert re.search(rf"\b{variable}=\S", sources), f"no command sets {variable}"
