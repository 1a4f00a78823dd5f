"""Parsing of pages: which blocks are programs, which are joined, and which errors are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.blocks import ROOT, Block, DocumentError, blocks, copies
from docs.running import command, on_real_nodes, run
from servers import Servers


def read(directory: Path, text: str) -> list[Block]:
    page = directory / "page.md"
    page.write_text(text)
    return blocks(page)


def test_a_program_keeps_its_line_numbers(tmp_path: Path) -> None:
    (block,) = read(tmp_path, "# Page\n\n```python\nimport sys\nprint(1)\n```\n")
    assert (block.line, block.language) == (3, "python")
    assert block.code.splitlines().index("print(1)") + 1 == 5


def test_a_block_without_a_client_continues_the_previous_block(tmp_path: Path) -> None:
    page = """
```python
import quorlock
```
```js
import { Client } from 'quorlock'
```
words
```python
print(1)
```
"""
    python, js = read(tmp_path, page)
    assert python.code == "\n\nimport quorlock\n\n\n\n\n\n\nprint(1)\n"
    assert js.code.strip() == "import { Client } from 'quorlock'"


@pytest.mark.parametrize(
    ("language", "begins", "continues"),
    [
        ("python", "from quorlock import Client, Lease", "from quorlock import Lease"),
        ("js", "const { Client } = require('quorlock')", "import { Lease } from 'quorlock'"),
        ("ts", "import { Client } from 'quorlock'", "import fs from 'node:fs'"),
        ("rust", "use quorlock::{Client, Lease};", "use quorlock::ErrorCode;"),
        ("sh", "true", None),
    ],
)
def test_importing_the_client_begins_a_program(
    language: str, begins: str, continues: str | None, tmp_path: Path
) -> None:
    def count(line: str) -> int:
        return len(read(tmp_path, f"```{language}\n{line}\n```\n" * 2))

    assert count(begins) == 2
    if continues is not None:
        assert count(continues) == 1


def test_directives_join_and_separate_blocks(tmp_path: Path) -> None:
    page = """
```python
import quorlock
```
<!-- test: continues -->
```python
import quorlock
```

<!-- test: alone -->

```python
print("c")
```
"""
    first, second = read(tmp_path, page)
    assert first.code.split() == ["import", "quorlock"] * 2
    assert second.code.strip() == 'print("c")'


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


def test_a_copy_of_a_file_is_no_program(tmp_path: Path) -> None:
    own = "```python\nimport quorlock\n```\n"
    copied = "<!-- file: demo/worker.py (part) -->\n```python\n1 / 0\n```\n"
    (block,) = read(tmp_path, f"{own}{copied}```python\nprint(1)\n```\n")
    assert block.code.split() == ["import", "quorlock", "print(1)"]
    (copy,) = copies(tmp_path / "page.md")
    assert (copy.line, copy.file, copy.is_part) == (5, ROOT / "demo" / "worker.py", True)


def test_blocks_in_tabs_are_dedented(tmp_path: Path) -> None:
    (block,) = read(
        tmp_path, '=== "Python"\n\n    ```python\n    if True:\n        pass\n\n    ```\n'
    )
    assert block.code.strip() == "if True:\n    pass"


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
    ("page", "status", "printed"),
    [
        ("```python\nimport asyncio\nawait asyncio.sleep(0)\nprint(1)\n```\n", 0, "1\n"),
        ("```python\nimport sys\n1 / 0\n```\n", 1, 'page.py", line 3'),
        ("```js\nimport 'node:fs'\nconsole.log(await 1)\n```\n", 0, "1\n"),
        ("```js\nconst fs = require('node:fs')\nfs.x()\n```\n", 1, "page.cjs:3"),
        ("```ts\nimport 'node:fs'\nconst x: number = await 1\nconsole.log(x)\n```\n", 0, "1\n"),
        ("```sh\necho $((1 / 0))\n```\n", 1, "page.sh: line 2"),
        ("```sh\nfalse | true\necho on\n```\n", 1, ""),
    ],
    ids=["python", "python fails", "js", "js fails", "ts", "sh", "sh, in a pipe"],
)
def test_programs_of_each_language_are_run(
    page: str, status: int, printed: str, tmp_path: Path
) -> None:
    (block,) = read(tmp_path, page)
    ended, text = run(command(block, block.code, tmp_path), tmp_path)
    assert ended == status
    assert printed in text


def test_types_of_typescript_programs_are_checked(tmp_path: Path) -> None:
    (block,) = read(tmp_path, "```ts\nimport 'node:fs'\nconst x: number = 'a'\n```\n")
    with pytest.raises(AssertionError, match=r"page\.mts\(3,7\): error TS2322"):
        command(block, block.code, tmp_path)


def test_a_program_is_killed_at_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs.running.TIMEOUT", 0.5)
    status, printed = run(["sh", "-c", "sleep 60 & sleep 60"], tmp_path)
    assert status < 0
    assert "killed after 0.5 s" in printed


def test_addresses_of_nodes_are_replaced(servers: Servers) -> None:
    first, second = servers[0].port, servers[1].port
    code = "redis://10.0.0.1,redis://app:secret@10.0.0.2:6379/1 redis://127.0.0.1:6379 10.0.0.1"
    assert on_real_nodes(code, servers) == (
        f"redis://127.0.0.1:{first},redis://app:secret@127.0.0.1:{second}/1"
        f" redis://127.0.0.1:{first} 10.0.0.1"
    )
    assert on_real_nodes("redis://127.0.0.1,redis://127.0.0.1:6380", servers) == (
        f"redis://127.0.0.1:{first},redis://127.0.0.1:{second}"
    )
    for other in [
        "redis://10.0.0.12",
        "redis://10.0.0.1:6380",
        "redis://10.0.0.9",
        "redis://127.0.0.1:6382",
    ]:
        assert on_real_nodes(other, servers) == other
