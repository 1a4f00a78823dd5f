"""Every Rust program in the documentation compiles, and runs unless it is marked `no_run`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cargo import build
from docs.blocks import Block, blocks, name, pages
from docs.running import environment, on_real_nodes, run
from servers import Servers

PAGES = [page for page in pages() if any(block.language == "rust" for block in blocks(page))]

CRATES = ("quorlock", "tokio")
"""The crates that the programs may use."""

BEGIN = (
    "#[allow(unused_imports)] use {quorlock::*, std::time::Duration};"
    ' #[tokio::main(flavor = "current_thread")]'
    " async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> { "
)
END = "Ok(()) }\n"


@pytest.fixture(scope="module")
def rustdoc() -> list[str]:
    """The rustdoc command that runs doc tests, with the options for using the crates in CRATES."""
    arguments = ["rustdoc", "--test", "--edition", "2024"]
    for artifact in build("--tests"):
        if artifact["profile"]["test"]:
            continue
        crate = artifact["target"]["name"]
        for file in map(Path, artifact["filenames"]):
            if file.suffix == ".rlib" and crate in CRATES:
                arguments += ["--extern", f"{crate}={file}"]
                arguments += [
                    "-L",
                    f"dependency={file.parent}",
                    "-L",
                    f"dependency={file.parent / 'deps'}",
                ]
    return arguments


def _program(block: Block) -> str:
    """Returns the block as a doc test with the same line numbers. Adds a `main` if it has none."""
    before, code = block.code[: block.line - 1], block.code[block.line :]
    fence = f"```rust,{block.attributes},{'ignore' if block.skipped else ''}\n"
    wrapped = code if "fn main" in code else f"{BEGIN}{code}{END}"
    return f"{before}{fence}{wrapped}```\n"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_programs_of_a_page_compile_and_run(
    page: Path, rustdoc: list[str], servers: Servers, tmp_path: Path
) -> None:
    text = ""
    for block in blocks(page):
        if block.language == "rust":
            text += _program(block)[text.count("\n") :]
    copy = tmp_path / page.name
    copy.write_text(on_real_nodes(text, servers))
    status, printed = run([*rustdoc, str(copy)], tmp_path, environment(servers))
    assert status == 0, f"{name(page)}, with its line numbers:\n{printed}"
