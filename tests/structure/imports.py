"""Reads the tree and returns which file imports which: Rust, Python and JavaScript.

It reads imports as text, without a compiler, so it also works on a tree that does not build.
It must not know any file by its name; `rooms.py` and the tests decide what is allowed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Graph = dict[Path, dict[Path, set[str]]]
"""For each file, the files that it imports, and the names that it takes from each."""


def rust(source: Path, crates: dict[str, Path] | None = None) -> Graph:
    """Returns the imports between the files of one Rust crate, whose root is `source/lib.rs` or
    `source/main.rs`. `crates` are other crates of the project: name to source directory.

    A `mod` declaration is not an import. A `use` of a re-exported name counts as an import of the
    file that re-exports it.
    """
    files = {_module(file, source): file for file in sorted(source.rglob("*.rs"))}
    graph: Graph = {file: {} for file in files.values()}
    for module, file in files.items():
        for path in _rust_paths(_without_comments(file.read_text()), module, files):
            target = _longest(path, files)
            if target is not None and target != file:
                graph[file].setdefault(target, set()).add(path[-1])
        for name, other in (crates or {}).items():
            if re.search(rf"\b{name}::", file.read_text()):
                graph[file].setdefault(other / "lib.rs", set()).add(name)
    return graph


def _module(file: Path, source: Path) -> tuple[str, ...]:
    parts = file.relative_to(source).with_suffix("").parts
    # A `main.rs` next to a `lib.rs` is a crate of its own, which no module can import.
    roots = ("mod", "lib") if (source / "lib.rs").exists() else ("mod", "main")
    return parts[:-1] if parts[-1] in roots else parts


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def _longest(path: tuple[str, ...], files: dict[tuple[str, ...], Path]) -> Path | None:
    """Returns the file of the longest prefix of `path` that is a module."""
    prefixes = (path[:length] for length in range(len(path), -1, -1))
    return next((files[prefix] for prefix in prefixes if prefix in files), None)


def _rust_paths(
    text: str, module: tuple[str, ...], files: dict[tuple[str, ...], Path]
) -> Iterator[tuple[str, ...]]:
    """Yields the absolute paths in the `use` items and expressions of a module."""
    for indent, tree in re.findall(r"^([ \t]*)(?:pub(?:\([^)]*\))? )?use ([^;]+);", text, re.M):
        for path in _leaves(tree):
            head, rest = path[0], path[1:]
            if head == "crate":
                yield rest
            elif head == "self":
                yield module + rest
            elif head == "super":
                # An indented `use` is in an inline module, so `super` is the module of the file.
                parent = module if indent else module[:-1]
                while rest and rest[0] == "super":
                    parent, rest = parent[:-1], rest[1:]
                if not indent or rest[:1] != ("*",):
                    yield parent + rest
            elif (*module, head) in files:
                yield module + path
    for path in re.findall(r"(?<!use )\bcrate::((?:\w+::)*\w+)", text):
        yield tuple(path.split("::"))


def _leaves(tree: str) -> Iterator[tuple[str, ...]]:
    """Yields the paths of a `use` tree: `a::{b, c::{self, d}}` is `a::b`, `a::c`, `a::c::d`."""
    tree = re.sub(r"\s+as\s+\w+", "", " ".join(tree.split())).strip()
    opening = tree.find("{")
    if opening < 0:
        path = tuple(part for part in tree.split("::") if part and part != "self")
        if path or tree == "self":
            yield path if tree != "self" else ("self",)
        return
    head = tuple(part for part in tree[:opening].split("::") if part)
    for branch in _branches(tree[opening + 1 : tree.rindex("}")]):
        if branch == "self":
            yield head
        else:
            for leaf in _leaves(branch):
                yield head + leaf


def _branches(text: str) -> Iterator[str]:
    depth, branch = 0, ""
    for character in f"{text},":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if branch.strip():
                yield branch.strip()
            branch = ""
        else:
            branch += character


def python(files: list[Path], roots: list[Path]) -> Graph:
    """Returns the imports between Python files, including those within functions. `roots` are the
    directories in which absolute imports are searched.

    `from . import x` counts as an import of the file of `x` if `x` is a module, and of the package
    otherwise.
    """
    modules: dict[tuple[str, ...], Path] = {}
    for file in files:
        for root in roots:
            if file.is_relative_to(root):
                parts = file.relative_to(root).with_suffix("").parts
                modules.setdefault(parts[:-1] if parts[-1] == "__init__" else parts, file)
    names = {file: module for module, file in reversed(list(modules.items()))}
    graph: Graph = {file: {} for file in files}
    # Skip stubs: only type checkers use their imports.
    for file in (file for file in files if file.suffix == ".py"):
        own = names.get(file, (file.stem,))
        package = own if file.name == "__init__.py" else own[:-1]
        for path in _python_paths(ast.parse(file.read_text()), package):
            # Modules in the directory of the file come first, as when Python runs the file.
            target = _longest_python(path, modules, file)
            if target is not None and target != file:
                graph[file].setdefault(target, set()).add(path[-1])
    return graph


def _python_paths(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                child.__dict__["is_for_types"] = True
        if node.__dict__.get("is_for_types"):
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def _longest_python(
    path: tuple[str, ...], modules: dict[tuple[str, ...], Path], importer: Path
) -> Path | None:
    beside = importer.parent / f"{path[0]}.py"
    if beside in modules.values():
        return beside
    prefixes = (path[:length] for length in range(len(path), 0, -1))
    return next((modules[prefix] for prefix in prefixes if prefix in modules), None)


def javascript(files: list[Path]) -> Graph:
    """Returns the imports between JavaScript files, by `import`, `export … from` and `require`."""
    known = set(files)
    pattern = r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)['"](\.{1,2}/[^'"]+)['"]"""
    graph: Graph = {file: {} for file in files}
    for file in files:
        text = re.sub(r"^\s*(//|\*|/\*).*$", "", file.read_text(), flags=re.M)
        for path in re.findall(pattern, text):
            target = (file.parent / path).resolve()
            if target in known and target != file:
                graph[file].setdefault(target, set()).add(path)
    return graph


def circles(graph: Graph) -> list[list[Path]]:
    """Returns the groups of files that import each other, directly or indirectly."""
    order: dict[Path, int] = {}
    lowest: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(file: Path) -> None:
        order[file] = lowest[file] = len(order)
        stack.append(file)
        for target in graph.get(file, {}):
            if target not in order:
                visit(target)
                lowest[file] = min(lowest[file], lowest[target])
            elif target in stack:
                lowest[file] = min(lowest[file], order[target])
        if lowest[file] == order[file]:
            group = stack[stack.index(file) :]
            del stack[stack.index(file) :]
            if len(group) > 1:
                found.append(sorted(group))

    for file in graph:
        if file not in order:
            visit(file)
    return found


def ties(graph: Graph, circle: list[Path]) -> list[str]:
    """Returns a line of text for each import between two files of the circle."""
    return [
        f"{file} imports {', '.join(sorted(names))} from {target}"
        for file in circle
        for target, names in graph[file].items()
        if target in circle
    ]
