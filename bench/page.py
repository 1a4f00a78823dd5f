"""The text of `docs/performance.md`, and of the section of the README.

It is in the templates `performance.md.in` and `readme.md.in`. In them, `{scale.held}` is the value
`held` of the topic `scale`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from bench.elections import page as elections
from bench.markdown import measured
from bench.performance import page as performance
from bench.scale import page as scale
from bench.semaphores import page as semaphores
from bench.serve import page as serve
from bench.settings import HERE
from bench.shared import page as shared

PAGES = {
    "performance": performance.values,
    "scale": scale.values,
    "elections": elections.values,
    "shared": shared.values,
    "semaphores": semaphores.values,
    "serve": serve.values,
}


def page(results: Mapping[str, dict[str, Any]]) -> str:
    """Returns the page on performance."""
    values = {
        topic: SimpleNamespace(**{"measured": measured(results[topic]), **values(results[topic])})
        for topic, values in PAGES.items()
    }
    return _template("performance.md.in").format_map(values)


def with_excerpt(readme: str, results: dict[str, Any]) -> str:
    """Returns the README with its section on performance replaced."""
    begin, end = "<!-- bench -->\n", "<!-- /bench -->\n"
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    excerpt = _template("readme.md.in").format_map(performance.readme(results))
    return before + begin + excerpt + end + after


def _template(name: str) -> str:
    """Reads a template. Puts each paragraph and each list item on one line."""
    return re.sub(r"(?<!\n)\n(?!\n|- |$) *", " ", (HERE / name).read_text())
