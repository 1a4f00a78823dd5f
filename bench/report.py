"""Writes `docs/performance.md`, its pictures and the figures in the README from the results."""

from __future__ import annotations

import json

from elections.settings import RESULTS as ELECTIONS
from figures import ASYNCIO, FLOOR, NODE, PYTHON, RUST, Figures
from markdown import micros
from page import page
from parameters import RESULTS, ROOT
from plots import draw
from scale.plots import draw as draw_scale
from scale.settings import RESULTS as SCALE
from semaphores.settings import RESULTS as SEMAPHORES
from serve.settings import RESULTS as SERVE
from shared.settings import RESULTS as SHARED

BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->\n"


def excerpt(figures: Figures) -> str:
    """Returns the section of the README."""
    floor = figures.latency(FLOOR)
    names = {"Rust": RUST, "Python": PYTHON, "Python with asyncio": ASYNCIO, "Node.js": NODE}
    times = _listed(
        [
            f"{micros(figure)} in {short}"
            for short, name in names.items()
            if (figure := figures.latency(name)) is not None
        ]
    )
    lines = [
        f"- **One lock at a time.** One acquire and release on five nodes takes {times} (medians)."
        f" Over raw sockets, without quorlock, the same requests take {_micros(floor)}."
    ]
    compared = [
        (short, peer / own)
        for short, name, form in [("Without", PYTHON, "sync"), ("With", ASYNCIO, "async")]
        if (peer := figures.fastest_peer("Python", form)) and (own := figures.latency(name))
    ]
    if compared:
        kinds = [" that locks on a majority of nodes", ""]
        sentences = [
            f" {short} asyncio, the fastest other library{kind} takes {times:.1f} times as long as"
            " quorlock."
            for (short, times), kind in zip(compared, kinds, strict=False)
        ]
        lines.append(f"- **Other Python libraries.**{''.join(sentences)}")
    tasks, threads = figures.rate(ASYNCIO, 64), figures.rate(PYTHON, 8)
    if tasks and threads:
        lines.append(
            f"- **Many locks at once.** One Python process acquires and releases {tasks:,.0f} locks"
            f" per second with 64 asyncio tasks, and {threads:,.0f} with 8 threads."
        )
    frozen = [figures.times_healthy(name, "two frozen") for name in names.values()]
    known = [times for times in frozen if times is not None]
    if known:
        lines.append(
            "- **Frozen nodes.** With two of five nodes frozen, one acquire and release takes"
            f" {min(known):.2f} to {max(known):.2f} times as long as with healthy nodes."
        )
    picture = "![One lock at a time on five nodes](docs/pictures/performance-one-at-a-time.svg)"
    return "\n".join([*lines, "", picture, ""])


def _listed(parts: list[str]) -> str:
    """Joins the parts with commas, and the last two with "and"."""
    return ", ".join([*parts[:-2], " and ".join(parts[-2:])])


def _micros(figure: float | None) -> str:
    return "an unknown time" if figure is None else micros(figure)


def main() -> None:
    figures = Figures(json.loads(RESULTS.read_text()))
    scale = json.loads(SCALE.read_text()) if SCALE.exists() else None
    elections = json.loads(ELECTIONS.read_text()) if ELECTIONS.exists() else None
    shared = json.loads(SHARED.read_text()) if SHARED.exists() else None
    semaphores = json.loads(SEMAPHORES.read_text()) if SEMAPHORES.exists() else None
    serve = json.loads(SERVE.read_text()) if SERVE.exists() else None
    text = page(figures, scale, elections, shared, semaphores, serve)
    (ROOT / "docs" / "performance.md").write_text(text)
    draw(figures, ROOT / "docs" / "pictures")
    if scale:
        draw_scale(scale, ROOT / "docs" / "pictures")
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(before + BEGIN + excerpt(figures) + END + after)


if __name__ == "__main__":
    main()
