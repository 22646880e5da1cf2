"""One file of HTML: style, scripts, Plotly and the figures, so that it needs nothing else."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from typing import Any

FOLDER = "pages"
"""Of the template, the style and the scripts, in the package."""
SHARED = ("page.js", "charts.js", "images.js")
"""Scripts of all pages."""


def page(document: dict[str, Any], kind: str) -> str:
    """Return the page of a kind, ``explain`` or ``compare``, with its figures."""
    from plotly.offline import get_plotlyjs  # late: only pages need it

    figures = json.dumps(document, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(f"{document['task']}: {kind}"),
        "style": part("page.css"),
        "body": part(f"{kind}.html"),
        # No text of a run may end the element that holds it.
        "data": figures.replace("<", "\\u003c"),
        "plotly": get_plotlyjs(),
        "script": "".join(map(part, (*SHARED, f"{kind}.js"))),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], part("frame.html"))


def part(name: str) -> str:
    """Return a file of the pages."""
    return resources.files("planet_bayes").joinpath(FOLDER, name).read_text()


def figures(text: str) -> dict[str, Any]:
    """Return the figures that a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None, "not a page of this package"
    document: dict[str, Any] = json.loads(found[1])
    return document
