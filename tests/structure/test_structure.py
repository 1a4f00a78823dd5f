"""Imports form no circle, and each of the twelve rooms of core/src imports only lower rooms."""

from __future__ import annotations

from pathlib import Path

import pytest
from structure import imports, rooms

SOURCE = rooms.ROOT / "core/src"


def test_no_file_imports_itself_through_others() -> None:
    for part, graph in rooms.graphs().items():
        found = imports.circles(graph)
        assert not found, (part, [imports.ties(graph, circle) for circle in found])


def test_core_has_only_its_rooms() -> None:
    assert rooms.strangers(SOURCE) == []
    assert len(list(SOURCE.iterdir())) <= 13


def test_rooms_import_only_rooms_below() -> None:
    assert rooms.upward(rooms.core(), SOURCE) == []


def test_core_has_at_most_ten_floors() -> None:
    assert max(rooms.floors(rooms.core(), SOURCE).values()) <= rooms.MOST_FLOORS


def write(directory: Path, files: dict[str, str]) -> Path:
    """Writes files, by their paths in `directory`."""
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


@pytest.mark.parametrize(
    "use",
    [
        "use crate::node::Node;",
        "use crate::{error, node::{self, Node}};",
        "pub(crate) use crate::node::link::*;",
        "use super::node::Node as Other;",
        "fn f() { crate::node::f() }",
        "mod inner {\n    use crate::node::Node;\n}",
    ],
)
def test_rust_circle_is_found_however_it_is_written(tmp_path: Path, use: str) -> None:
    write(
        tmp_path,
        {
            "lib.rs": "mod error;\nmod lock;\nmod node;",
            "error.rs": "",
            "lock.rs": use,
            "node/mod.rs": "mod link;\nuse crate::lock::Lock;",
            "node/link.rs": "use super::Node;",
        },
    )
    graph = imports.rust(tmp_path)
    assert [tmp_path / "lock.rs" in circle for circle in imports.circles(graph)] == [True]


def test_rust_declarations_comments_and_test_modules_are_no_imports(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "lib.rs": "mod node;",
            "node/mod.rs": "mod link;\n// use link::Link;\nmod tests {\n    use super::*;\n}",
            "node/link.rs": "use super::Node;",
        },
    )
    assert imports.circles(imports.rust(tmp_path)) == []


def test_python_circle_is_found_also_within_a_function(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "package/__init__.py": "from .a import A",
            "package/a.py": "def f():\n    from . import b",
            "package/b.py": "from package.a import A",
        },
    )
    files = sorted(tmp_path.rglob("*.py"))
    graph = imports.python(files, [tmp_path])
    a, b = (tmp_path / "package" / name for name in ("a.py", "b.py"))
    assert imports.circles(graph) == [[a, b]]


@pytest.mark.parametrize(
    "statement", ["import './b.js'", "export * from './b.js'", "require('./b.js')"]
)
def test_javascript_circle_is_found(tmp_path: Path, statement: str) -> None:
    write(tmp_path, {"a.js": statement, "b.js": "import { a } from './a.js'"})
    files = sorted(tmp_path.glob("*.js"))
    assert imports.circles(imports.javascript(files)) == [files]


def test_upward_import_stranger_and_floors_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "lib.rs": "use lock::Lock;",
            "error/mod.rs": "use crate::lock::Lock;",
            "lock/mod.rs": "use crate::runtime::Runtime;",
            "runtime/mod.rs": "",
            "attic/mod.rs": "",
        },
    )
    assert rooms.strangers(tmp_path) == ["attic"]
    graph = imports.rust(tmp_path)
    del graph[tmp_path / "attic/mod.rs"]
    upward = rooms.upward(graph, tmp_path)
    assert len(upward) == 1
    assert "error/mod.rs imports Lock from a higher room, lock/mod.rs" in upward[0]
    assert rooms.floors(graph, tmp_path)["lib.rs"] == 1 + rooms.floors(graph, tmp_path)["lock"]
