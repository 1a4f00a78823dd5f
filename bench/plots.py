"""The style of all pictures. The output is deterministic."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.figure import Figure

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "quorlock",
        # Keep text as text, not as paths: the files are smaller, and any narrow font fits.
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
    }
)

ACCENT, GREY, NEUTRAL, INK = "#1d6fd1", "#7d8590", "#c3c9d1", "#24292f"

DARK = """
@media (prefers-color-scheme: dark) {
  text { fill: #dde3ea }
  [style*="fill: #ffffff"] { fill: #1e2129 !important }
  [style*="fill: #24292f"] { fill: #dde3ea !important }
  [style*="fill: #c3c9d1"] { fill: #4d5766 !important }
  [style*="stroke: #c3c9d1"] { stroke: #4d5766 !important }
  [style*="fill: #7d8590"] { fill: #98a3b0 !important }
  [style*="stroke: #7d8590"] { stroke: #98a3b0 !important }
  [style*="fill: #1d6fd1"] { fill: #5aa2f5 !important }
  [style*="stroke: #1d6fd1"] { stroke: #5aa2f5 !important }
  [style*="stroke: #000000"] { stroke: #8d99a8 !important }
}"""
"""The colours of the plots on dark pages. The plots keep a background of their own."""


def save(picture: Figure, path: Path) -> None:
    """Writes the picture as SVG that also fits dark pages."""
    picture.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(picture)
    path.write_text(path.read_text().replace("</style>", f"{DARK}</style>", 1))
