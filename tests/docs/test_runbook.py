"""The runbook has one section for each alert, and the quoted error texts exist in the sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from docs.blocks import ROOT

RUNBOOK = ROOT / "docs" / "runbook.md"
URL = "https://github.com/quorlock/quorlock/blob/main/docs/runbook.md"
PARTS = ["Symptom", "First command", "Decision", "Rollback and end"]
"""The parts of each section of the runbook, in order."""

TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
SOURCES = {
    "core/src": "rs",
    "cli/src": "rs",
    "bindings-python/src": "rs",
    "bindings-python/python/quorlock": "py",
    "bindings-node": "js",
}
"""Where error texts are written: the directories, and the suffix of their files."""

_LITERALS = {
    "rs": r'"((?:[^"\\]|\\.)*)"',
    "py": r'"((?:[^"\\]|\\.)*)"',
    "js": r"'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`",
}
_COMMENTS = {"rs": r"^\s*//.*$", "py": r"^\s*#.*$", "js": r"^\s*(//|\*|/\*).*$"}
_JOINTS = {
    "rs": r"\\\n\s*|'\\?\"'",  # a continued line; also the quotation mark as a character
    "py": r'"\n\s*f?"',
    "js": r"'\s*\+\s*'|`\s*\+\s*`",
}
"""What separates the parts of one string literal."""
_PLACEHOLDERS = {"rs": r"\{[^{}\s]*\}", "py": r"\{[^{}]*\}", "js": r"\$\{[^{}]*\}"}


def alerts() -> dict[str, str]:
    """Returns the rule of each alert as text."""
    rules = (ROOT / "docs" / "grafana" / "alerts.yaml").read_text()
    named = re.split(r"^ +- alert: (\w+)$", rules, flags=re.MULTILINE)
    return dict(zip(named[1::2], named[2::2], strict=True))


def sections(page: Path, marks: str) -> dict[str, str]:
    """Returns the text of each section whose heading begins with these marks, by its heading."""
    parts = re.split(rf"^{marks} (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    assert len(alerts()) >= 4
    assert list(sections(RUNBOOK, "##")) == list(alerts())


@pytest.mark.parametrize("alert", alerts())
def test_the_runbook_url_of_an_alert_leads_to_its_section(alert: str) -> None:
    urls = re.findall(r"^ {10}runbook_url: (.+)$", alerts()[alert], re.MULTILINE)
    assert urls == [f"{URL}#{alert.lower()}"]


@pytest.mark.parametrize("alert", sections(RUNBOOK, "##"))
def test_a_section_of_the_runbook_has_all_parts(alert: str) -> None:
    section = sections(RUNBOOK, "##")[alert]
    parts = re.split(r"^\*\*(.+?)\.\*\* ", section, flags=re.MULTILINE)
    assert parts[1::2] == PARTS
    _, command, decision, _ = parts[2::2]
    # A tested command, and later its expected output.
    assert re.search(r"^```sh\n.+^```$.+^```text\n.+^```$", command, re.MULTILINE | re.DOTALL)
    assert decision.count("\n| ") >= 3


def error_texts() -> list[str]:
    """Returns the quoted texts: the first cell of each row in the section about error texts."""
    page = sections(TROUBLESHOOTING, "##")["By error text"]
    return re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE)


@cache
def messages() -> list[str]:
    """Returns the fixed parts of all string literals in the sources."""
    fixed = []
    for directory, suffix in SOURCES.items():
        for path in sorted((ROOT / directory).rglob(f"*.{suffix}")):
            if not {"node_modules", "tests", "testing", "tests.rs"} & set(path.parts):
                fixed += fixed_parts(path.read_text(), suffix)
    return fixed


def fixed_parts(text: str, suffix: str) -> list[str]:
    """Returns the parts of the string literals in a program that are not placeholders."""
    text = re.sub(_COMMENTS[suffix], "", text, flags=re.MULTILINE)
    text = re.sub(_JOINTS[suffix], "", text)
    literals = ["".join(found) for found in re.findall(_LITERALS[suffix], text)]
    parts = [part for literal in literals for part in re.split(_PLACEHOLDERS[suffix], literal)]
    for escape, character in {r"\"": '"', r"\'": "'", "{{": "{", "}}": "}"}.items():
        parts = [part.replace(escape, character) for part in parts]
    return parts


def is_in_the_sources(text: str) -> bool:
    """Whether each part of the text between `…` is in a message of the sources."""
    parts = [part.strip(" ,;:()") for part in text.split("…")]
    assert len("".join(parts)) >= 3, text
    return all(any(part in message for message in messages()) for part in parts)


@pytest.mark.parametrize("text", error_texts())
def test_a_quoted_error_text_exists_in_the_sources(text: str) -> None:
    assert is_in_the_sources(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the client is closed", True),
        ("the client is … closed", True),
        ("the client was shut", False),
        ("too few nodes could vote on … in time: … of … answered", True),
        ("too few nodes could vote on … yesterday", False),
    ],
)
def test_error_texts_are_searched_by_their_fixed_parts(text: str, expected: bool) -> None:
    assert is_in_the_sources(text) == expected


def test_at_least_thirty_error_texts_are_quoted() -> None:
    assert len(error_texts()) >= 30
    assert len(set(error_texts())) == len(error_texts())
