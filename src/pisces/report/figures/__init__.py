"""Figures as plotly.js draws them, of ledgers: plain values, and words.

No figure has more than a few thousand points, however long the log; colours of text and paper are
left to the page.
"""

from pisces.report.figures.bands import median_curves
from pisces.report.figures.bounds import bounded
from pisces.report.figures.comparison import compare_curves
from pisces.report.figures.curves import curve
from pisces.report.figures.figure import Figure
from pisces.report.figures.losses import losses
from pisces.report.figures.pace import contributors, intervals, staleness
from pisces.report.figures.speed import compare_speedups, compare_times
from pisces.report.figures.timeline import timeline

__all__ = [
    "Figure",
    "bounded",
    "compare_curves",
    "compare_speedups",
    "compare_times",
    "contributors",
    "curve",
    "intervals",
    "losses",
    "median_curves",
    "staleness",
    "timeline",
]
