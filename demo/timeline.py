"""Draws the timeline of a demo run as one HTML file that needs no other file and no network.

The first chart shows the whole run. Updates take a millisecond or two, so it counts them in
columns. The other charts are close-ups, which show each update and how long it waited for the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from demo.record import Entry, Process, Record, ServerEvent, Span, overlapping
from demo.result import checks, errors, is_sound, verdict, waits

COLUMNS = 240
"""The number of columns of the first chart."""
MS = 1_000_000
BEFORE, AFTER = 40 * MS, 260 * MS
"""The time that a close-up of a server event shows before and after the event."""
SHORT = 40 * MS
"""The length of the other close-ups."""
LABELLED = 2.2
"""Updates show the number that they wrote if they are wider than this, in percent of the chart."""
TICKS = 7
"""The largest number of times on an axis."""
MOST_ERRORS = 50
"""The largest number of errors that are listed."""

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Window:
    """The period that a chart shows."""

    begins: int
    ends: int

    def percent(self, at: int) -> float:
        inside = min(max(at, self.begins), self.ends) - self.begins
        return 100 * inside / max(self.ends - self.begins, 1)

    def shows(self, begins: int, ends: int) -> bool:
        return begins < self.ends and ends > self.begins

    def place(self, begins: int, ends: int) -> str:
        left = self.percent(begins)
        return f"left:{left:.3f}%;width:{self.percent(ends) - left:.3f}%"


def draw(record: Record) -> str:
    """Return the HTML page."""
    title = "quorlock demo: who held the lock, and when"
    if not record.locked:
        title = "quorlock demo without the lock: who was at work, and when"
    # The last updates end when the processes stop, a moment after the run.
    ends = max([record.ended, *(update["to"] for update in record.updates)])
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
        + "".join([*_summary(record), *_whole(record, _Window(record.began, ends))])
        + "".join(part for close_up in _close_ups(record) for part in close_up)
        + "</html>\n"
    )


def _summary(record: Record) -> Iterator[str]:
    good = not any(checks(record).values()) and (record.interrupted or is_sound(record))
    yield f'<p class="verdict {"good" if good else "bad"}">{escape(verdict(record))}</p>'
    seconds = (record.ended - record.began) / 1e9
    subject = f"{len(record.processes)} processes add 1 to the same counter again and again"
    how = f"under a lock on {record.servers} servers" if record.locked else "without a lock"
    yield f'<p class="dim">{subject}, {how}. The run took {seconds:.1f} s.</p>'
    rows = "".join(
        f'<tr><td>{escape(name)}<td class="{"bad" if found else "good"}">{found:,}'
        for name, found in checks(record).items()
    )
    yield f'<table class="checks"><tr><th>check<th>must be 0{rows}</table>'
    yield '<div class="scroll"><table><tr><th>process<th>updates'
    if record.locked:
        yield "<th>median wait<th>99 %<th>longest<th>errors"
    for process in record.processes:
        yield f"<tr><td>{escape(process.name)}<td>{len(process.updates):,}"
        if record.locked:
            yield "".join(f"<td>{wait:.1f} ms" for wait in waits(process))
            yield f"<td>{escape(errors(process))}"
    yield "</table></div>"


def _whole(record: Record, window: _Window) -> Iterator[str]:
    """The chart of the whole run."""
    yield "<h2>The whole run</h2>"
    yield _legend(record)
    marks = "".join(
        f'<span class="mark" style="left:{window.percent(event.at):.3f}%"></span>'
        for event in record.events
    )
    numbers = "".join(
        f'<b class="number" style="left:{window.percent(event.at):.3f}%">{number}</b>'
        for number, event in enumerate(record.events, 1)
    )
    yield _lane("", numbers, 24, "numbers")
    for server in range(1, record.servers + 1):
        yield _lane(f"server {server}", _server(record, window, server) + marks, 14)
    counted = [(process, _counts(process, window)) for process in record.processes]
    highest = max([1, *(max(counts) for _, counts in counted)])
    for process, counts in counted:
        content = _steps("columns", counts, highest) + _error_marks(process, window)
        text = f"{process.name}: updates"
        yield _lane(text, content + marks, 34, _language(process))
    if record.locked:
        longest = _longest_waits(record, window)
        text = f"longest wait (up to {max(longest):,.0f} ms)"
        yield _lane(text, _steps("waits", longest, max(1.0, *longest)) + marks, 34)
        yield _lane("fences", _fences(record, window) + marks, 34)
    spans = overlapping(record.updates)
    if spans or not record.locked:
        yield _lane("two or more at work", _twice(spans, window) + marks, 14)
    yield _axis(window, window.begins, 1e9, "s")
    yield (
        "<ol>" + "".join(_event(record, *event) for event in enumerate(record.events, 1)) + "</ol>"
    )
    yield from _list_of_errors(record)


def _legend(record: Record) -> str:
    parts = [("up", "server answers"), ("killed", "killed"), ("frozen", "frozen")]
    held = "holds the lock" if record.locked else "is at work"
    parts += [("python held", f"Python {held}"), ("node held", f"Node.js {held}")]
    if record.locked:
        parts.append(("waited", "waits for the lock"))
    parts.append(("python overlap", "is at work while another is"))
    items = (f'<span><i class="{name}"></i>{text}</span>' for name, text in parts)
    return f'<div class="legend">{"".join(items)}</div>'


def _event(record: Record, number: int, event: ServerEvent) -> str:
    at = (event.at - record.began) / 1e9
    text = escape(f"{at:.1f} s: server {event.server} is {event.what}")
    return f'<li><b class="number">{number}</b> {text}'


def _list_of_errors(record: Record) -> Iterator[str]:
    found = [(entry, process) for process in record.processes for entry in process.errors]
    found.sort(key=lambda pair: pair[0]["at"])
    if not found:
        return
    yield "<p>Errors of acquires and leases:</p><ul>"
    for entry, process in found[:MOST_ERRORS]:
        at = (entry["at"] - record.began) / 1e9
        yield f"<li>{at:.3f} s: {escape(process.name)}: {escape(entry['error'])}"
    if len(found) > MOST_ERRORS:
        yield f"<li>and {len(found) - MOST_ERRORS:,} more"
    yield "</ul>"


def _close_ups(record: Record) -> Iterator[Iterator[str]]:
    updates = record.updates
    if updates:
        yield iter([_explained(record)])
    if spans := overlapping(updates):
        text = "Close-up: the first time that two are at work at once"
        since = spans[0][0] - SHORT // 4
        if not record.locked:
            text = "Close-up: without the lock"
            since = spans[len(spans) // 6][0]
        yield _close_up(record, _Window(since, since + SHORT), text)
    if not record.locked or not updates:
        return
    quiet = updates[len(updates) // 6]["from"]
    yield _close_up(record, _Window(quiet, quiet + SHORT), "Close-up: all servers answer")
    for event in record.events:
        window = _Window(event.at - BEFORE, event.at + AFTER)
        text = f"Close-up: server {event.server} is {event.what}"
        yield _close_up(record, window, text, event.at)


def _close_up(
    record: Record, window: _Window, title: str, event: int | None = None
) -> Iterator[str]:
    """A chart that shows each update, and the wait before it."""
    origin = window.begins if event is None else event
    begins = (origin - record.began) / 1e9
    length = (window.ends - window.begins) // MS
    yield f"<h2>{escape(title)}</h2>"
    yield f'<p class="dim">{length} ms of the run. 0 ms is {begins:.3f} s after its start.'
    if length <= SHORT // MS:
        # A narrow screen shows no numbers in the bars.
        yield '<span class="wide"> The number in a bar is what the update wrote to the counter.'
        if not record.locked:
            yield " Equal numbers show lost updates."
        yield "</span>"
    yield "</p>"
    bad = [span for span in overlapping(record.updates) if window.shows(*span)]
    mark = "" if event is None else f'<span class="mark" style="left:{window.percent(event):.3f}%">'
    for process in record.processes:
        lines = _lines(process.updates)
        bars = "".join(_bar(window, process, update, 2 + 13 * line, bad) for update, line in lines)
        height = 2 + 13 * max([1, *(line + 1 for _, line in lines)])
        content = bars + _error_marks(process, window) + mark + "</span>" * bool(mark)
        yield _lane(process.name, content, height, _language(process))
    yield _axis(window, origin, MS, "ms")


def _explained(record: Record) -> str:
    """A paragraph about the lines of a process in the close-ups."""
    most = max(line + 1 for process in record.processes for _, line in _lines(process.updates))
    if most == 1:
        return "<p>In a close-up, each process has one line.</p>"
    works = "waits for the lock or holds it" if record.locked else "is at work"
    return (
        f"<p>In a close-up, each process has up to {most} lines: one for each thread or task that"
        f" {works}.</p>"
    )


def _lines(updates: list[Entry]) -> list[tuple[Entry, int]]:
    """Assign each update of a process, with its wait, to the first line that is free. So each line
    shows one thread or task at a time."""
    free: list[int] = []
    placed = []
    for update in sorted(updates, key=lambda update: update["asked"]):
        line = next((n for n, since in enumerate(free) if since <= update["asked"]), len(free))
        free[line : line + 1] = [update["to"]]
        placed.append((update, line))
    return placed


def _bar(window: _Window, process: Process, update: Entry, top: int, bad: list[Span]) -> str:
    asked, begins, ends = update["asked"], update["from"], update["to"]
    if not window.shows(asked, ends):
        return ""
    parts = ""
    if "fence" in update:
        parts = f'<i class="waited" style="{window.place(asked, begins)};top:{top + 5}px"></i>'
    if not window.shows(begins, ends):
        return parts
    title = f"{process.name}: wrote {update['wrote']:,} in {(ends - begins) / MS:.1f} ms"
    if "fence" in update:
        title += f", after a wait of {(begins - asked) / MS:.1f} ms, with fence {update['fence']}"
    overlaps = any(begins < until and ends > since for since, until in bad)
    width = window.percent(ends) - window.percent(begins)
    return parts + (
        f'<i class="held{" overlap" if overlaps else ""}" title="{escape(title)}"'
        f' style="{window.place(begins, ends)};top:{top}px">'
        f"{update['wrote'] if width > LABELLED else ''}</i>"
    )


def _server(record: Record, window: _Window, server: int) -> str:
    whole = '<i class="up" style="left:0;width:100%;height:100%"></i>'
    return whole + "".join(
        f'<i class="{what}" style="{window.place(*span)};height:100%"'
        f' title="server {server} is {what}"></i>'
        for what, span in record.down(server)
    )


def _column(window: _Window, at: int) -> int:
    return min(int(window.percent(at) / 100 * COLUMNS), COLUMNS - 1)


def _counts(process: Process, window: _Window) -> list[float]:
    """How many updates each column has."""
    counts = [0.0] * COLUMNS
    for update in process.updates:
        counts[_column(window, update["from"])] += 1
    return counts


def _longest_waits(record: Record, window: _Window) -> list[float]:
    """The longest wait that ended in each column, in milliseconds."""
    longest = [0.0] * COLUMNS
    for update in record.updates:
        column = _column(window, update["from"])
        longest[column] = max(longest[column], (update["from"] - update["asked"]) / MS)
    return longest


def _steps(name: str, columns: list[float], highest: float) -> str:
    path = "".join(
        f"M{column} 100V{100 - 96 * value / highest:.1f}h1V100z"
        for column, value in enumerate(columns)
        if value
    )
    return _svg(f'<path class="{name}" d="{path}"/>')


def _fences(record: Record, window: _Window) -> str:
    """A line from the smallest to the largest fence; fences that did not increase are marked."""
    updates = record.updates
    if not updates:
        return ""
    smallest: int = min(update["fence"] for update in updates)
    largest: int = max(update["fence"] for update in updates)

    def y(fence: int) -> float:
        return 92.0 - 84 * (fence - smallest) / max(largest - smallest, 1)

    last_of_columns = {_column(window, update["from"]): update for update in updates}
    points = " ".join(
        f"{window.percent(update['from']) / 100 * COLUMNS:.2f},{y(update['fence']):.1f}"
        for update in [updates[0], *last_of_columns.values()]
    )
    marks, before = "", 0
    for update in updates:
        if update["fence"] <= before:
            left = window.percent(update["from"])
            marks += f'<i class="bad" style="left:{left:.3f}%;width:2px;height:100%"></i>'
        before = max(before, update["fence"])
    return _svg(f'<polyline class="fences" points="{points}"/>') + marks


def _twice(spans: Iterable[Span], window: _Window) -> str:
    columns = [0.0] * COLUMNS
    for since, _ in spans:
        columns[_column(window, since)] = 1.0
    return _steps("twice", columns, 0.96)


def _error_marks(process: Process, window: _Window) -> str:
    return "".join(
        f'<span class="error" style="left:{window.percent(entry["at"]):.3f}%"'
        f' title="{escape(entry["error"])}">&times;</span>'
        for entry in process.errors
        if window.shows(entry["at"], entry["at"] + 1)
    )


def _svg(content: str) -> str:
    return f'<svg viewBox="0 0 {COLUMNS} 100" preserveAspectRatio="none">{content}</svg>'


def _lane(name: str, content: str, height: int, kind: str = "") -> str:
    box = f'<div class="box" style="height:{height}px">{content}</div>'
    return f'<div class="lane {kind}"><div class="name">{escape(name)}</div>{box}</div>'


def _axis(window: _Window, origin: int, unit: float, name: str) -> str:
    first, last = (window.begins - origin) / unit, (window.ends - origin) / unit
    steps = (factor * 10**power for power in range(6) for factor in (1, 2, 5))
    fits: Callable[[int], bool] = lambda step: (last - first) / step < TICKS  # noqa: E731
    step = next(filter(fits, steps), 10**6)
    number = -int(-first // step) * step
    ticks = ""
    while number <= last:
        place = window.percent(origin + int(number * unit))
        end = ' class="end"' if place > 93 else ""
        ticks += f'<span{end} style="left:{place:.2f}%">{number:g} {name}</span>'
        number += step
    return _lane("", ticks, 20, "axis")


def _language(process: Process) -> str:
    return "python" if process.name.startswith("Python") else "node"
