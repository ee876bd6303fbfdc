"""The script that draws figures, plotly.js: where the Python package `plotly` keeps it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pisces.errors import MissingPackageError

SCRIPT = "plotly.min.js"
LOOK = Path(__file__).with_name("look.js")  # our own few lines before it is used


def charts_script(needed_by: str) -> Path:
    """Its file; none of the package's Python is run: it is large."""
    spec = find_spec("plotly")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "package_data" / SCRIPT
        if path.is_file():
            return path
    raise MissingPackageError(
        f"{needed_by} needs the package plotly with its {SCRIPT}, which is not here: "
        "pip install 'pisces-fl[watch]'"
    )
