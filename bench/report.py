"""Writes `docs/performance.md`, its pictures and the figures in the README from the results."""

from __future__ import annotations

import json

from bench.page import PAGES, page, with_excerpt
from bench.performance import plots as performance
from bench.plots import save
from bench.scale import plots as scale
from bench.settings import ROOT, results_file


def main() -> None:
    results = {topic: json.loads(results_file(topic).read_text()) for topic in PAGES}
    docs, readme = ROOT / "docs", ROOT / "README.md"
    (docs / "performance.md").write_text(page(results))
    readme.write_text(with_excerpt(readme.read_text(), results["performance"]))
    pictures = performance.draw(results["performance"]) | scale.draw(results["scale"])
    for name, picture in pictures.items():
        save(picture, docs / "pictures" / f"performance-{name}.svg")


if __name__ == "__main__":
    main()
