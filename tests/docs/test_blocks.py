"""Blocks of a page are neither skipped nor passed by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.blocks import Block, DocumentError, blocks
from docs.running import command, run


def read(directory: Path, text: str) -> list[Block]:
    page = directory / "page.md"
    page.write_text(text)
    return blocks(page)


def test_a_directive_applies_to_the_next_block_only(tmp_path: Path) -> None:
    program = "```sh\ntrue\n```\n"
    page = f"<!-- test: skip (no) -->\nwords\n{program}<!-- test: skip (so) -->\n{program}"
    assert [block.skipped for block in read(tmp_path, page)] == ["", "(so)"]


def test_a_program_is_skipped_if_any_of_its_blocks_is(tmp_path: Path) -> None:
    page = "```python\nimport a\n```\n<!-- test: skip (no) -->\n```python\nb\n```\n"
    assert [block.skipped for block in read(tmp_path, page)] == ["(no)"]


def test_blocks_that_only_install_are_skipped(tmp_path: Path) -> None:
    install = "```sh\npip install quorlock  # so\n"
    page = f"{install}```\n{install}quorlock doctor\n```\n"
    assert [bool(block.skipped) for block in read(tmp_path, page)] == [True, False]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("```python\nprint(1)\n", "page.md:1: the block is not closed"),
        (
            "\n```javascript\n```\n",
            "page.md:2: the language of a block must be one of python, js",
        ),
        ("<!-- test: slip -->\n", "page.md:1: unknown directive"),
        ("<!-- test: skip -->\n", "page.md:1: `skip` requires an argument"),
        ("<!-- file: demo/missing.js -->\n", "page.md:1: demo/missing.js does not exist"),
        ("<!-- file: demo/worker.js part -->\n", "page.md:1: unknown directive"),
        ("  ```sh\ntrue\n  ```\n", "page.md:1: a line of the block is indented less"),
    ],
    ids=["no end", "language", "directive", "no reason", "file", "file directive", "indentation"],
)
def test_an_error_names_the_line(page: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, page)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("```python\nimport sys\n1 / 0\n```\n", 'page.py", line 3'),
        ("```js\nconst fs = require('node:fs')\nfs.x()\n```\n", "page.cjs:3"),
        ("```sh\necho $((1 / 0))\n```\n", "page.sh: line 2"),
        ("```sh\nfalse | true\necho on\n```\n", ""),
    ],
    ids=["python", "js", "sh", "sh, in a pipe"],
)
def test_a_program_that_fails_is_found(page: str, printed: str, tmp_path: Path) -> None:
    (block,) = read(tmp_path, page)
    ended, text = run(command(block, block.code, tmp_path), tmp_path)
    assert ended == 1
    assert printed in text


def test_types_of_typescript_programs_are_checked(tmp_path: Path) -> None:
    (block,) = read(tmp_path, "```ts\nimport 'node:fs'\nconst x: number = 'a'\n```\n")
    with pytest.raises(AssertionError, match=r"page\.mts\(3,7\): error TS2322"):
        command(block, block.code, tmp_path)
