"""Draws the timeline of a chaos run: leases, waits and faults, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import chain
from typing import Any

from chaos.check import Lease, end_promised, end_seen
from chaos.faults import CLIENT_FAULTS, LAYERS, MOMENTARY
from chaos.history import InjectedFault, Run, language
from chaos.waits import Wait

SECTION = 20
"""The time, in seconds, that one row of the timeline shows. A long run has several rows."""
WIDTH, LEFT = 1400, 130
SCALE = (WIDTH - LEFT) / SECTION
ROW = 7
"""The height, in pixels, of one line within a row. A line shows the leases of one resource or the
faults of one layer."""
GAP = 6
AXIS = 18
LONG_WAIT = 500_000_000
"""Waits are shown if they are longer than this, in nanoseconds."""
NAMED = 50_000_000
"""Leases have a tooltip if they are held for longer than this, in nanoseconds."""

LANGUAGES = {
    "Python": "#2f6db5",
    "Node.js": "#2e8b3d",
    "Rust": "#c2541b",
    "Go": "#0f8a9d",
    "Java": "#8b3fa0",
}
FAULTS = {
    "server killed": "#111111",
    "server stopped": "#8a8f98",
    "queues lost": "#4b5bd1",
    "subscriptions cut": "#9aa5f0",
    "delay": "#e8c33c",
    "cut": "#e0218a",
    "refuse": "#b04fc9",
    "hold": "#7a4b2b",
    "hold commands": "#d98e5f",
    "hold replies": "#a8b545",
    "drop replies": "#3fb7c4",
    "lose reply": "#f08fb1",
    "client killed": "#111111",
    "client stopped": "#8a8f98",
    "client cut off": "#7a4b2b",
    "client requests lost": "#d98e5f",
    "client replies lost": "#a8b545",
    "daemon killed": "#111111",
    "daemon stopped": "#8a8f98",
    "daemon drained": "#3fb7c4",
}
WAITING = 'fill="#9a9a9a"'
NODE_ROWS = {"process": 0, "mode": 1, "cut": 1, "delay": 2, "daemon": 0}

STYLE = """
body { font: 13px/1.5 system-ui, sans-serif; margin: 20px; color: #222; background: #fff }
h1 { font-size: 19px; margin: 0 0 6px } table { border-collapse: collapse; margin: 6px 0 }
td, th { padding: 1px 12px 1px 0; text-align: left; vertical-align: top; font-weight: normal }
th { color: #777 } .bad { color: #d00 } p { margin: 3px 0 }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 8px 0; max-width: 1400px }
.legend span { white-space: nowrap } .legend svg { vertical-align: -2px; margin-right: 5px }
svg.row { display: block; margin-bottom: 14px } svg text { font: 11px system-ui, sans-serif }
"""


def draw(run: Run, figures: dict[str, Any]) -> str:
    """Returns the HTML page."""
    leases, waits = run.leases, run.waits
    rows = "\n".join(
        _Row(run, leases, waits, begins).svg()
        for begins in range(0, int(run.seconds(run.ended)) + 1, SECTION)
    )
    violations = "".join(
        f"<p class=bad>{run.seconds(violation.at):.3f} s: {escape(violation.kind)}:"
        f" {escape(violation.text)}</p>"
        for violation in run.violations[:10]
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>quorlock chaos, seed {run.seed}</title>"
        f"<style>{STYLE}</style><h1>quorlock under faults: leases over time</h1>"
        f"{_table(figures)}{violations}{_legend()}"
        f"<p>Each client has one line per resource: {', '.join(_resources(leases))}.</p>{rows}"
    )


def _table(figures: dict[str, Any]) -> str:
    def words(figure: object) -> str:
        if isinstance(figure, dict):
            return ", ".join(f"{name} {value}" for name, value in figure.items())
        if isinstance(figure, list):
            return f"<span class=bad>{len(figure)}</span>" if figure else "none"
        return str(figure)

    return (
        "<table>"
        + "".join(f"<tr><th>{name}<td>{words(figure)}" for name, figure in figures.items())
        + "</table>"
    )


def _legend() -> str:
    def item(shape: str, text: str) -> str:
        return f"<span><svg width=24 height=12>{shape}</svg>{text}</span>"

    def box(attributes: str) -> str:
        return f'<rect width="24" height="12" {attributes}/>'

    items = [item(box(f'fill="{colour}"'), f"held by {name}") for name, colour in LANGUAGES.items()]
    blue = LANGUAGES["Python"]
    items += [
        item(box(f'fill="{blue}" opacity=".3"'), "promised, but not checked by its holder"),
        item(
            f'<rect y="5" width="24" height="2" fill="{blue}"/>',
            "the lease has ended, but its holder is not finished",
        ),
        item(
            f'<rect y="5" width="24" height="1" {WAITING}/>',
            f"waiting for longer than {LONG_WAIT / 1e9:g} s",
        ),
        item(
            box('fill="#e9f7e9"'),
            "calm: no faults; all clients get a lock, and earlier acquires end",
        ),
        item(_violation(12, 12), "violation"),
    ]
    for kind, colour in FAULTS.items():
        opacity = ' opacity=".35"' if kind in CLIENT_FAULTS else ""
        shape = box(f'fill="{colour}"{opacity}')
        if kind in MOMENTARY:
            shape = f'<rect x="11" width="2" height="12" fill="{colour}"/>'
        items.append(item(shape, kind))
    return f"<div class=legend>{''.join(items)}</div>"


def _resources(leases: list[Lease]) -> list[str]:
    return sorted({lease.resource for lease in leases})


def _violation(x: float, height: float) -> str:
    return f'<path d="M{x:.2f} 0V{height}" stroke="#e00000" opacity=".6"/>'


def _text(x: float, y: float, anchor: str, colour: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


class _Row:
    """One row of the timeline, which shows SECTION seconds of the run."""

    def __init__(self, run: Run, leases: list[Lease], waits: list[Wait], begins: int) -> None:
        self._run = run
        self._leases = leases
        self._waits = waits
        self._begins = begins
        self._resources = _resources(leases)
        self._lanes: dict[str, tuple[int, int]] = {}
        """The top and the height of the lane of each client and node."""
        y = AXIS
        for client, _ in run.histories:
            self._lanes[client] = (y, ROW * len(self._resources))
            y += ROW * len(self._resources) + GAP
        for node in sorted({s.target for s in run.injected if s.kind not in CLIENT_FAULTS}):
            self._lanes[node] = (y, ROW * (max(NODE_ROWS.values()) + 1))
            y += ROW * (max(NODE_ROWS.values()) + 1) + GAP
        self._height = y

    def svg(self) -> str:
        parts = [self._background(), self._waited(), self._held(), self._faults()]
        body = "".join(chain(*parts, self._violations()))
        return f'<svg class=row width="{WIDTH}" height="{self._height}">{body}</svg>'

    def _x(self, at: int) -> float:
        inside = min(max(self._run.seconds(at) - self._begins, 0), SECTION)
        return LEFT + inside * SCALE

    def _is_shown(self, begins: int, ends: int) -> bool:
        since, until = self._run.seconds(begins), self._run.seconds(ends)
        return since < self._begins + SECTION and until >= self._begins

    def _rect(self, begins: int, ends: int, y: float, height: float, style: str, title: str) -> str:
        if not self._is_shown(begins, ends):
            return ""
        x = self._x(begins)
        width = max(self._x(ends) - x, 0.7)
        inner = f"<title>{escape(title)}</title>" if title else ""
        place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}"'
        return f"<rect {place} {style}>{inner}</rect>" if inner else f"<rect {place} {style}/>"

    def _background(self) -> Iterator[str]:
        for begins, ends in self._run.calms:
            height = self._height - AXIS
            yield self._rect(begins, ends, AXIS, height, 'fill="#e9f7e9"', "")
        for second in range(SECTION + 1):
            x = LEFT + second * SCALE
            yield f'<path d="M{x:.1f} {AXIS}V{self._height}" stroke="#ddd" stroke-width=".6"/>'
            text = f"{self._begins + second}{' s' if second == 0 else ''}"
            anchor = "end" if second == SECTION else "middle"
            yield _text(x, 12, anchor, "#777", text)
        for name, (y, height) in self._lanes.items():
            colour = LANGUAGES.get(language(name), "#444")
            yield _text(LEFT - 10, y + height / 2 + 4, "end", colour, name)
            under = y + height + GAP / 2
            yield f'<path d="M{LEFT} {under}H{WIDTH}" stroke="#eee" stroke-width=".8"/>'

    def _waited(self) -> Iterator[str]:
        for wait in self._waits:
            ended = wait.ended or self._run.ended
            since = f"since {self._run.seconds(wait.asked):.3f} s: {wait.outcome}"
            for resource in wait.resources if ended - wait.asked > LONG_WAIT else ():
                if resource in self._resources:
                    y = self._lanes[wait.client][0] + ROW * self._resources.index(resource)
                    title = f"{wait}, {since}"
                    yield self._rect(wait.asked, ended, y + ROW - 1, 1, WAITING, title)

    def _held(self) -> Iterator[str]:
        for lease in self._leases:
            y = self._lanes[lease.client][0] + ROW * self._resources.index(lease.resource)
            seen = end_seen(lease)
            release_began = lease.release_began or seen
            fill = f'fill="{LANGUAGES[language(lease.client)]}"'
            title = ""
            if max(seen, release_began) - lease.granted > NAMED:
                title = (
                    f"{lease.client}: {lease.resource}, fence {lease.fence},"
                    f" from {self._run.seconds(lease.granted):.3f} s"
                    f" to {self._run.seconds(release_began):.3f} s{', lost' if lease.lost else ''}"
                )
            promised = max(seen, end_promised(lease))
            if promised - seen > NAMED / 10:
                yield self._rect(seen, promised, y, ROW - 1, f'{fill} opacity=".3"', title)
            if release_began > promised:
                yield self._rect(promised, release_began, y + ROW / 2 - 1.5, 2, fill, title)
            yield self._rect(lease.granted, seen, y, ROW - 1, fill, title)

    def _faults(self) -> Iterator[str]:
        for fault in self._run.injected:
            if fault.kind in CLIENT_FAULTS:
                yield self._client_fault(fault)
                continue
            y = self._lanes[fault.target][0] + ROW * NODE_ROWS[LAYERS[fault.kind]]
            ends = max(fault.ends, fault.begins + int(2 / SCALE * 1e9))
            style = f'fill="{FAULTS[fault.kind]}"'
            yield self._rect(fault.begins, ends, y, ROW - 1, style, self._title(fault))

    def _client_fault(self, fault: InjectedFault) -> str:
        y, height = self._lanes[fault.target]
        style = f'fill="{FAULTS[fault.kind]}" opacity=".35"'
        band = self._rect(fault.begins, fault.ends, y - 2, height + 3, style, self._title(fault))
        if fault.kind == "client killed" and self._is_shown(fault.begins, fault.begins):
            x, middle = self._x(fault.begins), y + height / 2
            band += (
                f'<path d="M{x - 5:.1f} {middle - 5}l10 10m0 -10l-10 10" stroke="#d00"'
                ' stroke-width="2.5"/>'
            )
        return band

    def _title(self, fault: InjectedFault) -> str:
        since, until = self._run.seconds(fault.begins), self._run.seconds(fault.ends)
        return f"{fault.target}: {fault.kind} from {since:.3f} s to {until:.3f} s"

    def _violations(self) -> Iterator[str]:
        for violation in self._run.violations:
            if self._is_shown(violation.at, violation.at):
                yield _violation(self._x(violation.at), self._height)
