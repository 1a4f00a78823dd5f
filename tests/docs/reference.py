"""Compares the API pages with the public names of the three packages.

On a page, a heading that is the name of a class begins the section of the class. A heading such as
`Lease.extend` begins the entry of a member. The next paragraph is its signature, and contains only
code: a method with its parameters and result, as the functions `python`, `node` and `rust` return
it, or a property with its type. The forms of one member, such as `extend` and `extend_async`, share
an entry. The fields of a record, the keys of options, the variants of an enum, and the methods of a
builder that set an option, are in the first column of a table in the section of their class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from docs.blocks import ROOT

Members = dict[str, set[str]]
"""The members of each class. The names of the package itself have the key ''."""

PYTHON = ROOT / "bindings-python" / "python" / "quorlock"
NODE = ROOT / "bindings-node"
RUST = ROOT / "core" / "src"

_CODE = re.compile(r"`([^`]+)`")


_SIGNATURES = re.compile(r"`[^`]+`(?:,\s+`[^`]+`)*")
_FORMS = re.compile(r"(?:(?:async )?with|Decorator|new) @?(\w+)|str\((\w+)\)")
"""The titles of entries that do not begin with the name of a class."""

FOR_BINDINGS_ONLY = "For language bindings"
"""The section whose members need no entries."""


@dataclass
class Page:
    """What an API page says."""

    members: Members
    """All members that it names, by class."""
    rows: Members
    """Those of them that are in a table, apart from the items for language bindings."""
    types: dict[str, str]
    """The types of properties, such as `Lease.fence`."""
    mistakes: list[str]
    """Headings without a signature, and signatures below the heading of another member."""


def on_page(text: str, classes: set[str]) -> Page:
    """Reads a page. `classes` are the names of the package, including those of functions."""
    page = Page({"": set()}, {}, {}, [])
    owners = {each.lower(): each for each in classes}
    functions = {base(each): each for each in classes if "(" in each}
    section, is_for_bindings = "", False
    for part in re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).split("\n\n"):
        paragraph = part.strip()
        if heading := re.fullmatch(r"(#+) (.*)", paragraph):
            title = heading[2].strip("`")
            if len(heading[1]) == 2:
                is_for_bindings = title == FOR_BINDINGS_ONLY
            section, entry = _begun(title, section, owners, functions, page)
            continue
        if entry is not None:
            _read_signatures(paragraph, section, entry, page)
        entry = None
        table = re.match(r"\|.*\n\| ---.*\n", paragraph)
        for line in paragraph[table.end() :].splitlines() if table else ():
            # In a table, `|` is written `\|`.
            names = _CODE.findall(line.split(" | ")[0].replace(r"\|", "|"))
            page.members.setdefault(section, set()).update(names)
            if not is_for_bindings:
                page.rows.setdefault(section, set()).update(names)
    return page


def _begun(
    title: str, section: str, owners: Mapping[str, str], functions: Mapping[str, str], page: Page
) -> tuple[str, str | None]:
    """Returns the class to which a heading belongs, and the title of an entry if it begins one."""
    if title in owners.values():
        page.members[""].add(title)
        page.members.setdefault(title, set())
        return title, f"{title}("
    if form := _FORMS.fullmatch(title):
        return owners.get((form[1] or form[2]).lower(), "?"), title
    if title in functions:
        return "", title
    if member := re.fullmatch(r"(\w+)(?:\.|::|(?=\[))(\[?[\w.]+\]?)", title):
        if member[1] not in owners.values():
            page.mistakes.append(f"{title}: there is no {member[1]}")
        return member[1], member[2]
    return "", None


def _read_signatures(paragraph: str, section: str, entry: str, page: Page) -> None:
    """Reads the paragraph after a heading. For a class, it may be the signature to create it."""
    name = entry.removesuffix("(").removeprefix("Decorator ")
    if not _SIGNATURES.fullmatch(paragraph):
        if not entry.endswith("("):
            page.mistakes.append(f"{section} {entry} has no signature")
        return
    for signature in _CODE.findall(paragraph):
        if base(signature) != base(name):
            page.mistakes.append(f"{signature} is below the heading of {section} {name}")
        if typed := re.fullmatch(r"(\w+): (.*)", signature):
            page.types[f"{section}.{typed[1]}"] = typed[2]
        page.members.setdefault(section, set()).add(typed[1] if typed else signature)


def base(signature: str) -> str:
    """Returns the name that the forms of a member share."""
    if signature.startswith(("with ", "async with ", "@", "str(")):
        return signature.removeprefix("async ")
    name = re.split(r"(?<=\w|\])[(:]", signature)[0]
    return "close" if name == "aclose" else name.removesuffix("_async")


WITHOUT_FIELDS = ("Client", "Lock", "Semaphore", "Lease", "Election", "Watch", "Nodes", "Node")
"""Classes without fields: each property has an entry."""

BUILDERS = ("ClientBuilder", "Lock", "Semaphore", "Adoption", "Election")
"""Classes of Rust with methods that set an option."""


def without_entries(page: Page) -> list[str]:
    """Returns the members in tables that must have an entry."""
    return [
        f"{owner}: {each} has no heading"
        for owner, rows in sorted(page.rows.items())
        for each in sorted(rows)
        if (
            "->" in each or owner not in BUILDERS
            if "(" in each
            else owner in WITHOUT_FIELDS or not (owner or each.endswith(("Error", "Warning")))
        )
    ]


def differences(page: Members, code: Members) -> list[str]:
    """Returns what is missing on the page, and what the page names but the code does not have."""
    found = []
    for owner in sorted(page.keys() | code.keys()):
        shown, real = page.get(owner, set()), code.get(owner, set())
        of = f"{owner}: " if owner else ""
        found += [f"{of}{each} is not on the page" for each in sorted(real - shown)]
        found += [f"{of}{each} does not exist" for each in sorted(shown - real)]
    return found


# Python


def python() -> Members:
    exported = _python_exports((PYTHON / "__init__.py").read_text())
    names = exported | {"quorlock.prometheus.Collector", "quorlock.opentelemetry.instrument"}
    members: Members = {"": set()}
    sources = [path.read_text() for path in sorted(PYTHON.glob("*.py"))]
    native = _classes((PYTHON / "_quorlock.pyi").read_text())
    classes = {name: body for source in sources for name, body in _classes(source).items()}
    for name in names:
        short = name.rpartition(".")[2]
        if name in exported and short in classes:
            acquirable = [native["Acquirable"], classes["Acquirable"]]
            options = [classes["LeaseOptions"], classes["AcquireOptions"]]
            bases = {
                "Lock": acquirable,
                "LockOptions": options,
                "Lease": [native["LeaseBlock"]],
                "Semaphore": acquirable,
                "SemaphoreOptions": options,
            }
            own = _python_members(short, classes[short], *bases.get(short, []))
            members[""].add(name)
            if own:
                members[name] = own
        elif short in classes:
            (constructor,) = _constructors(short, classes[short])
            members[""].add(name.replace(short, constructor))
        else:
            functions = [_function(source, short) for source in sources]
            owner = name.removesuffix(short)
            signatures = [f"{owner}{_method(each)}" for each in functions if each]
            members[""].update(signatures or {name})
    for name in ("Nodes", "Node"):
        members[""].add(name)
        # The constructor of a `Node` is not public.
        faults = _python_members("_Faults", classes["_Faults"])
        members[name] = _python_members(name, classes[name]) | faults
    return members


def python_types() -> dict[str, str]:
    """Returns the types of all properties of the public classes."""
    found = {}
    for path in sorted(PYTHON.glob("*.py")):
        for name, body in _classes(path.read_text()).items():
            for each in body.body:
                if isinstance(each, ast.FunctionDef) and _is_property(each) and each.returns:
                    found[f"{name}.{each.name}"] = ast.unparse(each.returns).strip("'")
    return found


def _is_property(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and any(
        ast.unparse(each) == "property" for each in statement.decorator_list
    )


def _python_exports(source: str) -> set[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return set(ast.literal_eval(statement.value))
    raise AssertionError("there is no __all__")


def _classes(source: str) -> dict[str, ast.ClassDef]:
    return {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _function(source: str, name: str) -> ast.FunctionDef | None:
    found = (each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef))
    return next((each for each in found if each.name == name), None)


def _python_members(name: str, body: ast.ClassDef, *inherited: ast.ClassDef) -> set[str]:
    """Returns the members of a class, apart from the codes of the errors."""
    if any("Error" in ast.unparse(base) for base in body.bases):
        return set()
    forms = {
        "__enter__": f"with {name.lower()}",
        "__aenter__": f"async with {name.lower()}",
        "__call__": f"@{name.lower()}",
        "__str__": f"str({name.lower()})",
    }
    found = set(_constructors(name, body)) if name in ("Client", "Nodes") else set()
    overloaded = {each.name for each in body.body if _is_overload(each)}
    for each in [each for part in (*inherited, body) for each in part.body]:
        match each:
            case ast.AnnAssign(target=ast.Name(id=field)) if not field.startswith("_"):
                found.add(field)
            case ast.FunctionDef(name="__init__"):
                found.update(_attributes(each))
            case ast.FunctionDef(name=method) | ast.AsyncFunctionDef(name=method):
                if method in forms:
                    found.add(forms[method])
                elif not method.startswith("_") and (
                    method not in overloaded or _is_overload(each)
                ):
                    found.add(_method(each))
    return found


def _is_overload(statement: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(statement, ast.FunctionDef) and any(
        ast.unparse(each) == "overload" for each in statement.decorator_list
    )


def _constructors(name: str, body: ast.ClassDef) -> list[str]:
    found = (each for each in body.body if isinstance(each, ast.FunctionDef))
    return [
        f"{name}{_parameters(each)}"
        for each in found
        if each.name == "__init__" and not _is_overload(each)
    ]


def _attributes(initializer: ast.FunctionDef) -> Iterator[str]:
    for each in ast.walk(initializer):
        match each:
            case ast.AnnAssign(target=ast.Attribute(attr=name)) if not name.startswith("_"):
                yield name


def _method(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if _is_property(function):
        return function.name
    returned = ast.unparse(function.returns).strip("'") if function.returns else "None"
    arrow = "" if returned == "None" else f" -> {returned}"
    return f"{function.name}{_parameters(function)}{arrow}"


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the parameters with their defaults, without `self` and types.

    Parameters that accept nothing, such as `*misplaced: Never`, exist only for the text of errors.
    """
    arguments = function.args
    if arguments.vararg and _is_never(arguments.vararg):
        arguments.vararg = None
    if arguments.kwarg and _is_never(arguments.kwarg):
        arguments.kwarg = None
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    for positional in (arguments.posonlyargs, arguments.args):
        if positional and positional[0].arg == "self":
            del positional[0]
    return f"({ast.unparse(arguments)})"


def _is_never(argument: ast.arg) -> bool:
    return argument.annotation is not None and ast.unparse(argument.annotation) == "Never"


# Node.js


def node() -> Members:
    members: Members = {"": set()}
    sources = [(NODE / f"{module}.d.ts").read_text() for module in ("index", "testing")]
    types = _types(_without_comments("\n".join(sources)))
    for exported, name, base, body in types:
        own = _node_members(name, body)
        inherited = [_node_members(other, text) for _, other, _, text in types if other == base]
        if not exported:
            continue
        members[""].add(name)
        if not (own == {"code"} and base == "QuorlockError"):
            members[name] = own.union(*inherited)
    for module in ("current-lease", "fastify", "nestjs", "opentelemetry", "prometheus"):
        text = _without_comments((NODE / f"{module}.d.ts").read_text())
        for exported, name, _, body in _types(text):
            if exported:
                members[""].add(name)
                members[name] = _node_members(name, body)
        members[""].update(re.findall(r"^export const (\w+):", text, re.M))
        for function in re.findall(r"^export function (.*?)(?=^export |\Z)", text, re.M | re.S):
            members[""].update(_members_of(f"{function}\n"))
    return members


def node_types() -> dict[str, str]:
    """Returns the types of all properties of the classes and interfaces."""
    sources = [(NODE / f"{module}.d.ts").read_text() for module in ("index", "testing")]
    return {
        f"{name}.{each}": kind
        for _, name, _, body in _types(_without_comments("\n".join(sources)))
        for each, kind in re.findall(r"^  readonly (\w+): (.+)$", body, re.M)
    }


def _without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)


def _types(source: str) -> list[tuple[bool, str, str, str]]:
    """Returns the classes and interfaces: whether each is exported, its name, base and body."""
    pattern = r"^(export )?(?:class|interface) (\w+)(?: extends (\w+))?[^{\n]*\{\n(.*?)^\}"
    return [
        (bool(exported), name, base, body)
        for exported, name, base, body in re.findall(pattern, source, re.M | re.S)
    ]


def _node_members(name: str, body: str) -> set[str]:
    constructor = r"^constructor\((.*)\).*"
    found = {re.sub(constructor, rf"new {name}(\1)", each) for each in _members_of(body)}
    return {each for each in found if not each.startswith(("private ", "[field", "[position"))}


def _members_of(body: str) -> Iterator[str]:
    """Yields the members of a class, without the types of parameters and properties."""
    depth, text = 0, ""
    for character in re.sub(r"\n\s*\|", " |", body):
        depth += (character in "({[<") - (character in ")}]")
        # An arrow is no closing bracket.
        depth -= character == ">" and not text.endswith("=")
        if character == "\n" and depth == 0 and not text.endswith(":"):
            if text.strip():
                yield _member(re.sub(r"^(readonly|static) ", "", " ".join(text.split())))
            text = ""
        else:
            text += character


def _member(text: str) -> str:
    name = r"(private constructor|\[?[\w.]+\]?)(?:<[^(]+>)?"
    called = re.fullmatch(rf"{name}\((.*?)\)(?:: (.*))?", text)
    if called is None or (called[3] is None and "constructor" not in called[1]):
        return re.split(r"\??:", text)[0]
    # The last `)` before the type that is returned ends the parameters.
    name, rest = text.split("(", 1)
    end = _closing(rest)
    parameters = ", ".join(each for each in _names(rest[:end]) if each != "this")
    result = rest[end + 1 :]
    # A page shows the base type in place of a type parameter.
    if generic := re.search(r"<(\w+) extends (\w+)>$", name):
        result = re.sub(rf"\b{generic[1]}\b", generic[2], result)
    return f"{re.sub('<.*', '', name)}({parameters}){result}"


def _closing(text: str) -> int:
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return index
    raise AssertionError(text)


def _names(parameters: str) -> Iterator[str]:
    """Yields the names of parameters, with `?` where they are optional."""
    depth, part = 0, ""
    for index, character in enumerate(parameters + ","):
        if character == "," and depth == 0:
            if name := re.match(r"\s*(\w+\??):", part):
                yield name[1]
            part = ""
        else:
            depth += (character in "({[<") - (character in ")}]")
            depth -= character == ">" and parameters[index - 1] not in "=-"
            part += character


# Rust


def rust() -> Members:
    """Returns the members of the crate. The methods for language bindings belong to the crate."""
    sources = [
        _without_rust_comments(path.read_text())
        for path in sorted(RUST.rglob("*.rs"))
        if "testing" not in path.relative_to(RUST).parts and "tests" not in path.stem
    ]
    source = _expanded("\n".join(sources))
    members: Members = {"": set()}
    for name in _rust_exports(sources, (RUST / "lib.rs").read_text()):
        own = _rust_members(source, name)
        if function := re.search(rf"^pub fn {name}\b.*?\{{\n", source, re.M | re.S):
            members[""].add(_rust_function(function[0]))
            continue
        bindings = {each for each in own if each.split("(")[0] in FOR_BINDINGS}
        members[""].add(name)
        members[""].update(f"{name}::{each.split(' ->')[0]}" for each in bindings)
        if own - bindings:
            members[name] = own - bindings
    return members


FOR_BINDINGS = (
    "option",
    "credentials_by_request",
    "acquire_as",
    "try_acquire_as",
    "detach_by",
    "hand_over_by",
    "extend_by",
    "release_by",
    "on_lost",
    "abandon",
    "on_ready",
)
"""Methods that the page lists apart from the others."""


def _without_rust_comments(source: str) -> str:
    source = source.split("#[cfg(test)]\nmod tests {")[0]
    source = re.sub(r"#\[doc\(hidden\)\]\n\s*pub ", "", source)
    return re.sub(r"^\s*(//|#\[).*\n", "", source, flags=re.M)


def _expanded(source: str) -> str:
    """Returns the source with the setters that several builders have in each of these."""
    macro = r"^macro_rules! (\w+) \{\n    \(\) => \{\n(.*?)^    \};\n\}"
    for name, setters in re.findall(macro, source, re.M | re.S):
        source = source.replace(f"    {name}!();\n", re.sub("^    ", "", setters, flags=re.M))
    return source


def _rust_exports(sources: list[str], library: str) -> set[str]:
    found: set[str] = set()
    for path in re.findall(r"^pub use ([^;]+);", library, re.M):
        name = path.split(" as ")[-1].strip()
        if "{" in name:
            found.update(each.strip() for each in name.split("{")[1].strip("}").split(","))
        else:
            found.add(name.split("::")[-1])
    return found - {""}


def _rust_members(source: str, name: str) -> set[str]:
    found: set[str] = set()
    if body := re.search(rf"^pub struct {name}(?:<\w+>)? \{{\n(.*?)^\}}", source, re.M | re.S):
        found.update(re.findall(r"^    pub (\w+):", body[1], re.M))
    if body := re.search(rf"^pub enum {name} \{{\n(.*?)^\}}", source, re.M | re.S):
        found.update(re.findall(r"^    (\w+)", body[1], re.M))
    for body in re.finditer(
        rf"^impl(?:<\w+>)? {name}(?:<\w+>)? \{{\n(.*?)^\}}", source, re.M | re.S
    ):
        found.update(re.findall(r"^    pub const (\w+):", body[1], re.M))
        functions = re.findall(r"^    pub (?:const |async )?fn .*?\{\n", body[1], re.M | re.S)
        found.update(map(_rust_function, functions))
    return found


def _rust_function(text: str) -> str:
    """Returns a function with the names of its parameters. What a builder returns is left out."""
    text = " ".join(text.split()).removesuffix(" {").split(" where ")[0]
    name = re.search(r"fn (\w+)", text)
    assert name is not None
    rest = _after_generics(text[name.end() :])
    end = _closing(rest[1:]) + 1
    parameters = [each.rstrip("?") for each in _names(_without_mut(rest[1:end]))]
    returned = rest[end + 1 :].strip()
    # A method that takes and returns its object is a step of a builder.
    arrow = f" {returned}" if returned and not (returned == "-> Self" and "self" in rest) else ""
    return f"{name[1]}({', '.join(parameters)}){arrow}"


def _without_mut(parameters: str) -> str:
    return re.sub(r"\bmut (?=\w+:)", "", parameters)


def _after_generics(text: str) -> str:
    depth = 0
    for index, character in enumerate(text):
        if character == "(" and depth == 0:
            return text[index:]
        depth += (character == "<") - (character == ">")
    raise AssertionError(text)


API = {"python": python, "node": node, "rust": rust}
TYPES = {"python": python_types, "node": node_types}


def page(language: str) -> Path:
    return ROOT / "docs" / "api" / f"{language}.md"


def unknown(text: str, members: Members) -> list[str]:
    """Returns the names such as `lease.fence` or `Client::stats` in a text that do not exist."""
    objects = {name.lower(): name for name in members if name in ("Client", "Lease", "Lock")}
    found = []
    for code in _CODE.findall(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        match = re.match(r"(\w+)(?:\.|::)(\w+)", code)
        if match is None:
            continue
        owner = objects.get(match[1], match[1])
        # The methods for language bindings are among the names of the crate.
        names = members.get(owner, set()) | {each for each in members[""] if code in each}
        if owner in members and not any(
            match[2] == re.split(r"\W", each.rpartition("::")[2])[0] for each in names
        ):
            found.append(code)
    return found
