"""The rewriting of pages before MkDocs reads them, and the link check of the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "site"))

import links as checking
import llms
from docs.blocks import PACKAGES, SKILL, name
from rewriting import ROOT, links, pipes, tabs

REPOSITORY = "https://example.com/us/it"


def test_bold_names_become_tabs() -> None:
    inside = "**One**\n\n```js\n  x\n```\n\n**Two**\n\nb\n"
    page = f"a\n\n<!-- tabs -->\n{inside}<!-- /tabs -->\n\n**c**\n"
    lines = [line for line in tabs(page).split("\n") if line]
    assert lines == [
        "a",
        *['=== "One"', "    ```js", "      x", "    ```"],
        *['=== "Two"', "    b"],
        "**c**",
    ]


def test_pipes_in_the_code_of_tables_are_not_escaped() -> None:
    row = r"| `a \| b` | c \| d |"
    assert pipes(f"{row}\n`a \\| b`\n") == "| `a | b` | c \\| d |\n`a \\| b`\n"


def test_links_to_files_outside_docs_lead_to_the_repository() -> None:
    page = "[a](../README.md#errors) [b](../core/src) [c](leases.md#forks) [d](../docs/x.md)"
    warnings: list[str] = []
    assert links(page, ROOT / "docs" / "page.md", REPOSITORY, warnings.append) == (
        f"[a]({REPOSITORY}/blob/main/README.md#errors) [b]({REPOSITORY}/tree/main/core/src)"
        " [c](leases.md#forks) [d](../docs/x.md)"
    )
    assert not warnings
    links("[e](../missing.md)", ROOT / "docs" / "page.md", REPOSITORY, warnings.append)
    links("[f](../../elsewhere)", ROOT / "docs" / "page.md", REPOSITORY, warnings.append)
    assert ["missing.md" in warnings[0], "elsewhere" in warnings[1]] == [True, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Lease.extend", ["Lease", "extend"]),
        ("Client::lock", ["Client", "lock"]),
        ("extend(ttl=None)", ["extend", "ttl", "None"]),
        ("on_lost", ["on_lost"]),
        ("1.88", ["1.88"]),
    ],
)
def test_the_search_finds_a_member_by_its_name(text: str, words: list[str]) -> None:
    separator = re.search(r"^      separator: '(.*)'$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert separator is not None
    assert [word for word in re.split(separator[1], text) if word] == words


@pytest.mark.parametrize("page", PACKAGES, ids=name)
def test_pages_shown_by_registries_have_absolute_links(page: Path) -> None:
    found = re.findall(r"\]\((.*?)\)", page.read_text())
    assert found
    for link in found:
        assert link.startswith("https://"), link
        if link.startswith(blob := f"{checking.OURS}/blob/main/"):
            assert (ROOT / link.removeprefix(blob).partition("#")[0]).is_file(), link


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("b.html#there", False),
        ("#here", False),
        ("sub/", False),
        ("pictures/a%20b.svg", False),
        ("https://example.com/missing", False),
        ("mailto:a@example.com", False),
        ("b.html#missing", True),
        ("missing.html", True),
        ("#missing", True),
        ("../a.html", True),
    ],
)
def test_broken_links_of_the_site_are_reported(
    link: str,
    is_broken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.html").write_text(f'<p id="here"><a href="{link}">x</a></p>')
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").touch()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a b.svg").touch()
    monkeypatch.setattr(checking, "SITE", tmp_path)
    assert checking.main(everything=False) == is_broken
    assert (f"a.html: {link}" in capsys.readouterr().out) == is_broken


def navigation(*files: Path) -> list[Any]:
    """Returns a navigation as MkDocs makes it: a page, and a section with the other pages."""
    pages = [
        SimpleNamespace(
            is_page=True,
            is_section=False,
            title=file.stem.title(),
            url=f"{file.stem}.html",
            file=SimpleNamespace(abs_src_path=str(file)),
        )
        for file in files
    ]
    link = SimpleNamespace(is_page=False, is_section=False)
    children = [link, *pages[1:]]
    section = SimpleNamespace(is_page=False, is_section=True, title="Start", children=children)
    return [pages[0], section]


def test_llms_txt_has_the_first_sentence_of_each_page(tmp_path: Path) -> None:
    texts = {
        "a": "# A\n\n![x](x.svg)\n\n<!-- no -->\n`A` is [a\npage](b.md). It is short.\n",
        "b": "# B\n\n```sh\ncode\n```\n\n- no\n\nb 1.5: two\n\nthree.\n",
    }
    for stem, text in texts.items():
        (tmp_path / f"{stem}.md").write_text(text)
    nav = navigation(tmp_path / "a.md", tmp_path / "b.md")
    pages = list(llms.entries(nav))
    assert llms.index("q", "A lock", "https://example.com/", pages).splitlines() == [
        "# q",
        "",
        "> A lock",
        "",
        "## Overview",
        "",
        "- [A](https://example.com/a.html): `A` is a page.",
        "",
        "## Start",
        "",
        "- [B](https://example.com/b.html): b 1.5: two",
    ]


def test_llms_full_txt_has_the_pages_without_comments() -> None:
    pages = list(llms.entries(navigation(ROOT / "docs" / "faq.md", ROOT / "docs" / "packages.md")))
    text = llms.full(REPOSITORY, "", pages)
    assert text.startswith("Source: faq.html\n\n# ")
    assert "\n\n---\n\nSource: packages.html\n\n# " in text
    assert "<!--" not in text
    assert "](../" not in text
    for page in pages:
        headings = [line for line in page.file.read_text().splitlines() if line.startswith("## ")]
        assert headings
        for heading in headings:
            assert f"\n{heading}\n" in text


def test_every_page_has_a_summary() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert len(llms.summary(page.read_text()).split()) >= 4, page


def test_the_skill_file_is_short_and_named_as_its_directory() -> None:
    head, *lines = SKILL.read_text().splitlines()
    assert (head, lines[0]) == ("---", f"name: {SKILL.parent.name}")
    assert lines[1].startswith("description: ")
    assert lines[2] == "---"
    assert len(lines) < 60
