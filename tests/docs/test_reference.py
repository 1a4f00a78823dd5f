"""The reference pages are complete and true: the API pages, the options and the errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.blocks import ROOT
from docs.reference import (
    API,
    PYTHON,
    TYPES,
    WITHOUT_FIELDS,
    Members,
    Page,
    differences,
    node,
    on_page,
    page,
    python,
    rust,
    unknown,
    without_entries,
)

OPTIONS = ROOT / "docs" / "options.md"
ERRORS = ROOT / "docs" / "errors.md"
CONFIG = (ROOT / "core" / "src" / "config" / "options.rs").read_text()
COMMAND = (ROOT / "cli" / "src" / "args.rs").read_text()


def shown(language: str, text: str | None = None) -> tuple[Page, Members]:
    code = API[language]()
    text = page(language).read_text() if text is None else text
    return on_page(text, code[""] | code.keys()), code


def wrong(language: str, text: str | None = None) -> list[str]:
    """Returns all differences between an API page and the code."""
    read, code = shown(language, text)
    return differences(read.members, code) + read.mistakes + without_entries(read)


def rows(text: str, heading: str) -> list[list[str]]:
    """Returns the cells of the first table below a heading, without the header."""
    section = re.split(r"^## ", text.split(f"\n## {heading}\n")[1], flags=re.M)[0]
    table = re.search(r"^\|.*\n\| ---.*\n((?:\|.*\n)+)", section, re.M)
    assert table is not None
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table[1].splitlines()]


@pytest.mark.parametrize("language", API)
def test_an_api_page_has_all_names_and_no_others(language: str) -> None:
    assert not wrong(language)


@pytest.mark.parametrize("language", API)
def test_the_text_of_an_api_page_names_only_what_exists(language: str) -> None:
    assert not unknown(page(language).read_text(), API[language]())


@pytest.mark.parametrize("language", TYPES)
def test_the_entries_of_properties_have_the_types_of_the_code(language: str) -> None:
    read, code = shown(language)
    named = {
        f"{owner}.{each}"
        for owner in WITHOUT_FIELDS
        for each in code.get(owner, ())
        if re.fullmatch(r"\w+", each)
    }
    types = TYPES[language]()
    assert read.types == {each: types[each] for each in named}


@pytest.mark.parametrize("language", API)
def test_the_cells_of_an_api_page_are_short(language: str) -> None:
    table = [line for line in page(language).read_text().splitlines() if line.startswith("|")]
    cells = [cell for line in table for cell in re.split(r"(?<!\\)\|", line)]
    assert [cell for cell in cells if len(cell.split()) > 40] == []


@pytest.mark.parametrize(
    ("language", "old", "new", "expected"),
    [
        ("python", "`check()`", "`chek()`", ["check() is not on the page", "chek() does not"]),
        ("python", "### Lease.check\n\n", "", ["check() is not on the page"]),
        ("python", "`check()`", "Checks.", ["Lease check has no signature"]),
        ("python", "# Lease.check", "# Lease.chek", ["check() is below the heading of Lease chek"]),
        ("python", "# Lease.check", "# Leaze.check", ["there is no Leaze", "check() is not on"]),
        ("python", "### with lease", "### with leese", ["Lease: with lease is not on the page"]),
        ("python", "extend(ttl=None)", "extend(ttl)", ["extend(ttl) does not exist"]),
        ("python", "`locked() -> bool`", "`locked()`", ["locked() -> bool is not on the page"]),
        ("python", "| `attempts` |", "| attempts |", ["Stats: attempts is not on the page"]),
        ("python", "## NodeStats", "## Nodes", ["NodeStats is not on the page"]),
        (
            "python",
            "### Lease.check\n\n`check()`\n",
            "| member |\n| --- |\n| `check()` |\n",
            ["Lease: check() has no heading"],
        ),
        (
            "python",
            "### Lease.ttl\n\n`ttl: float`\n",
            "| member |\n| --- |\n| `ttl` |\n",
            ["Lease: ttl has no heading"],
        ),
        ("node", "`valid: boolean`", "`isValid: boolean`", ["Lease: isValid does not exist"]),
        ("node", "`extend(ttl?)", "`extend(ttl)", ["extend(ttl?): Promise<void> is not on"]),
        ("node", "# new Nodes", "# new Node", ["new Nodes(count?) is below the heading of Node"]),
        ("rust", "`close() -> Pending<()>`", "`close()`", ["Client: close() does not exist"]),
        ("rust", "`Contested`", "`Torn`", ["State: Contested is not on the page"]),
        ("rust", "release_all(patience)", "release_all()", ["release_all() does not exist"]),
        (
            "rust",
            "### Lease::check\n\n`check() -> Result<()>`\n",
            "| method |\n| --- |\n| `check() -> Result<()>` |\n",
            ["Lease: check() -> Result<()> has no heading"],
        ),
        (
            "rust",
            "### release_all\n\n`release_all(patience)`\n",
            "| name |\n| --- |\n| `release_all(patience)` |\n",
            [": release_all(patience) has no heading"],
        ),
    ],
)
def test_a_missing_and_an_invented_name_are_found(
    language: str, old: str, new: str, expected: list[str]
) -> None:
    text = page(language).read_text()
    assert old in text
    found = "\n".join(wrong(language, text.replace(old, new)))
    for each in expected:
        assert each in found


def test_an_unknown_name_in_the_text_is_found() -> None:
    text = "`client.lock` `lease.fense` `Lock::acquire` `Lease.gone()` `lock.locked()`"
    assert unknown(text, rust()) == ["lease.fense", "Lease.gone()"]


def test_the_names_of_the_packages_are_read_completely() -> None:
    members = python()
    assert {"Client", "Lease", "Stats", "__version__"} < members[""]
    assert {"fence", "release(*, keep=LOCK) -> bool", "wait_lost(timeout=None) -> bool"} < members[
        "Lease"
    ]
    assert "new Client(nodes?, options?)" in node()["Client"]
    assert {"outcome", "address", "detail"} == node()["NodeReport"]
    assert "extend(ttl) -> Pending<Result<()>>" in rust()["Lease"]
    assert {"Granted", "ALL", "as_str() -> &'static str"} < rust()["NodeOutcome"]


# Options


def names_of_options() -> list[str]:
    names: list[str] = []
    for owner in ("PER_CLIENT", "PER_LOCK"):
        listed = re.search(rf"const {owner}: \[&str; \d+\] =\s+\[(.*?)\];", CONFIG, re.S)
        assert listed is not None
        names += [name for name in re.findall(r'"(\w+)"', listed[1]) if name not in names]
    return names


def test_the_page_has_all_options_in_all_languages() -> None:
    names = names_of_options()
    text = OPTIONS.read_text()
    assert [row[0].split("`")[1] for row in rows(text, "All options")] == names
    assert re.findall(r"^## ([a-z_]+)$", text, re.M) == names
    table = rows(text, "Names")
    for name, (own, camel, flag, variable) in zip(names, table, strict=True):
        first, *others = name.split("_")
        assert (own, camel) == (f"`{name}`", f"`{first}{''.join(map(str.title, others))}`")
        if f"pub(crate) {name}:" in COMMAND:
            assert flag == f"`--{name.replace('_', '-')}`"
            assert variable == f"`QUORLOCK_{name.upper()}`"
            # The client reads those of a fleet, and the help names them.
            read = variable.strip("`")
            assert f'env = "{read}"' in COMMAND or f"[env: {read}]" in COMMAND
        else:
            own_flags = {"mode": "`--shared`, `--shared-for`"}
            assert (flag, variable) == (own_flags.get(name, ""), "")


def test_the_options_that_a_lock_overrides_are_marked() -> None:
    listed = re.search(r"const PER_LOCK: \[&str; \d+\] =\s+\[(.*?)\];", CONFIG)
    assert listed is not None
    marked = [
        row[0].split("`")[1] for row in rows(OPTIONS.read_text(), "All options") if "*" in row[0]
    ]
    assert marked == re.findall(r'"(\w+)"', listed[1])


def test_the_options_of_a_semaphore_are_those_of_the_page() -> None:
    source = (ROOT / "core" / "src" / "config" / "permits.rs").read_text()
    largest = re.search(r"pub const MAX_PERMITS: u32 = (\w+);", source)
    assert largest is not None
    table = rows(OPTIONS.read_text(), "Options of a semaphore")
    assert [row[0] for row in table] == ["`limit`", "`permits`"]
    assert table[0][2] == f"1 to {int(largest[1].replace('_', '')):,}"
    for _, _, _, flag, _ in table:
        assert f"pub(crate) {flag.strip('`-')}:" in COMMAND


UNITS = {"ms": 1.0, "s": 1e3, "h": 3600e3}


def times(text: str) -> list[float]:
    """Returns the durations in a cell of the page, in milliseconds."""
    return [
        float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+) (ms|s|h)\b", text)
    ]


def duration(expression: str) -> float:
    """Returns a duration of the source in milliseconds."""
    for name in (
        "MILLISECOND",
        "HOUR",
        "MIN_TTL",
        "MAX_TTL",
        "MIN_DEFAULT_NODE_TIMEOUT",
        "NODE_TIMEOUT",
        "WITHIN",
    ):
        if expression == name:
            found = re.search(rf"const {name}: Duration = ([^;]+);", CONFIG)
            assert found is not None
            expression = found[1]
    found = re.fullmatch(r"Duration::from_(millis|secs)\(([\d *]+)\)", expression)
    assert found is not None, expression
    product = 1.0
    for factor in found[2].split("*"):
        product *= float(factor)
    return product * (1e3 if found[1] == "secs" else 1.0)


def test_defaults_are_those_of_the_code() -> None:
    source = CONFIG.split("impl Default for Options")[1].split("\n}\n")[0]
    cells = {row[0].split("`")[1]: row[1] for row in rows(OPTIONS.read_text(), "All options")}
    for name in ("ttl", "wait", "max_hold", "connect_timeout"):
        value = re.search(rf"\b{name}: (?:Some\()?(HOUR|Duration::from_\w+\(\d+\))", source)
        assert value is not None
        assert times(cells[name]) == [duration(value[1])], name
    delays = re.findall(r"(?:shortest|longest): (Duration::from_\w+\(\d+\))", source)
    assert times(cells["retry_delay"]) == [duration(each) for each in delays]
    assert f"drift_factor: {cells['drift_factor']}," in source
    assert ("restart_guard: None" in source) == (cells["restart_guard"] == "off")
    assert ("auto_extend: true" in source) == (cells["auto_extend"] == "on")
    assert ("key_prefix: String::new()" in source) == (cells["key_prefix"] == "empty")
    assert "(ttl / 20).clamp(MIN_DEFAULT_NODE_TIMEOUT, NODE_TIMEOUT)" in CONFIG
    limits = [duration("MIN_DEFAULT_NODE_TIMEOUT"), duration("NODE_TIMEOUT")]
    assert (cells["node_timeout"].split(",")[0], times(cells["node_timeout"])) == ("ttl/20", limits)


def test_defaults_in_the_docstrings_of_python_are_those_of_the_page() -> None:
    cells = {row[0].split("`")[1]: row[1] for row in rows(OPTIONS.read_text(), "All options")}
    text = " ".join((PYTHON / "_client.py").read_text().split())
    said = {
        name: [float(each) * 1e3 for each in re.findall(r"[\d.]+", default)]
        for name, default in re.findall(
            r"- `(\w+)`: [^`]*?(\d+|\([\d., ]+\)) (?:if the client|by default)", text
        )
    }
    names = ("ttl", "wait", "max_hold", "connect_timeout", "retry_delay")
    assert {name: said[name] for name in names} == {name: times(cells[name]) for name in names}


@pytest.mark.parametrize(
    ("name", "source", "limits"),
    [
        ("ttl", "self.duration(MIN_TTL, MAX_TTL)", ["MIN_TTL", "MAX_TTL"]),
        ("node_timeout", "option.duration(MILLISECOND, HOUR)", ["MILLISECOND", "HOUR"]),
        ("connect_timeout", "option.duration(MILLISECOND, HOUR)", ["MILLISECOND", "HOUR"]),
        ("max_hold", "self.unless_for_ever(MIN_TTL", ["MIN_TTL"]),
        ("retry_delay", "self.within(number, MILLISECOND, HOUR)", ["MILLISECOND", "HOUR"]),
        ("restart_guard", "self.within(*number, MIN_TTL, MAX_TTL)", ["MIN_TTL", "MAX_TTL"]),
        ("heartbeat_timeout", "self.within(*number, MIN_TTL, MAX_TTL)", ["MIN_TTL", "MAX_TTL"]),
    ],
)
def test_ranges_are_those_of_the_code(name: str, source: str, limits: list[str]) -> None:
    cells = {row[0].split("`")[1]: row[2] for row in rows(OPTIONS.read_text(), "All options")}
    assert source in CONFIG
    assert times(cells[name]) == [duration(limit) for limit in limits]


def test_the_range_of_the_drift_factor_is_that_of_the_code() -> None:
    cells = {row[0].split("`")[1]: row[2] for row in rows(OPTIONS.read_text(), "All options")}
    first, last = cells["drift_factor"].split(" to ")
    assert f"({float(first)}..={float(last)})" in CONFIG


def number(path: str, name: str) -> int:
    """Returns a constant of the source."""
    found = re.search(rf"const {name}: \w+ = ([\d_]+);", (ROOT / path).read_text())
    assert found is not None
    return int(found[1].replace("_", ""))


@pytest.mark.parametrize("language", API)
def test_ranges_on_the_api_pages_are_those_of_the_code(language: str) -> None:
    text = " ".join(page(language).read_text().split())
    ttl = [duration("MIN_TTL"), duration("MAX_TTL")]
    if language == "node":
        ranges = re.findall(r"\b([\d,]+) to ([\d,]{7,}) ms", text)
        found = [[float(each.replace(",", "")) for each in limits] for limits in ranges]
    else:
        found = [times(each) for each in re.findall(r"\d+ m?s to \d+ h", text)]
    # `extend`, `detach`, `hand_over` and `release`. In Rust, `hand_over` refers to `detach`.
    assert found == [ttl] * (3 if language == "rust" else 4)
    resources = "core/src/config/resources.rs"
    length = f"1 to {number(resources, 'MAX_LENGTH'):,} bytes"
    assert text.count(length) == len(re.findall(r"1 to [\d,]+ bytes", text)) == 2
    count = number(resources, "MAX_RESOURCES")
    assert f"1 to {count} " in text
    permits = number("core/src/config/permits.rs", "MAX_PERMITS")
    assert re.findall(r"1 to (\d,\d+)[^\d ]", text) == [f"{permits:,}"]
    assert f"1 to {number('core/protocol/src/quorum.rs', 'MAX_NODES')}." in text
    if language != "rust":
        [default] = re.findall(r"Default: ([\d,]+ m?s) or `restart_?[gG]uard`", text)
        assert times(default.replace(",", "")) == [duration("WITHIN")]


# Errors


def words(source: Path, name: str) -> dict[str, str]:
    """Returns what a method of the source returns for each variant."""
    text = source.read_text().split(f"impl {name} {{")[1].split("\n}\n")[0]
    return dict(re.findall(r'Self::(\w+) => "(\w+)"', text.split("fn class")[0]))


def test_the_page_has_all_codes_classes_and_outcomes() -> None:
    source = ROOT / "core" / "src" / "error" / "mod.rs"
    text = ERRORS.read_text()
    codes = words(source, "ErrorCode")
    classes = dict(re.findall(r'Self::(\w+) => "(\w+Error)"', source.read_text()))
    table = [row[:2] for row in rows(text, "Error codes")]
    assert table == [[f"`{codes[each]}`", f"`{classes[each]}`"] for each in codes]
    for variant in codes:
        assert f"`{variant}`" in text
    outcomes = [row[0].strip("`") for row in rows(text, "Node outcomes")]
    assert outcomes == list(words(source, "NodeOutcome").values())


# Events


def test_the_page_has_all_events_with_their_levels() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "core" / "src").rglob("*.rs")))
    found: dict[str, set[str]] = {}
    for name, level in re.findall(r'name: "(\w+\.\w+)", target: \w+, Level::(\w+)', text):
        found.setdefault(name, set()).add(level)
    table = rows((ROOT / "docs" / "observability.md").read_text(), "Events")
    shown = {row[0].strip("`"): row[1] for row in table}
    # The bindings report how many events they have dropped.
    assert shown.pop("records.dropped") == "WARN"
    assert shown.keys() == found.keys()
    assert len(found) > 20
    for name, levels in found.items():
        assert shown[name] in levels, name
