"""Write the tables of results into the pages that contain them.

A page marks a table with the command that prints it, on a line of its own:

    <!-- planet-bayes table experiments/NAME.toml -->
    ...
    <!-- end of table -->

Run:  make tables     # tests/test_documents.py checks that nothing would change
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

from planet_bayes import cli

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "results")
BLOCK = re.compile(
    r"^<!-- planet-bayes (table [^\n]*?) -->\n(.*?)^<!-- end of table -->$",
    re.DOTALL | re.MULTILINE,
)


def printed(command: str) -> str:
    """Return what a command prints, such as ``table experiments/NAME.toml``."""
    first, source, *options = shlex.split(command)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main([first, str(ROOT / source), *options])
    if code:
        raise SystemExit(f"planet-bayes {command} failed.")
    return out.getvalue()


def renewed(text: str) -> str:
    """Return the text of a page with its tables printed again."""

    def block(found: re.Match[str]) -> str:
        command = found[1]
        return f"<!-- planet-bayes {command} -->\n\n{printed(command)}\n<!-- end of table -->"

    return BLOCK.sub(block, text)


def pages() -> list[Path]:
    """Return the pages that contain marked tables."""
    found = [ROOT / "README.md"]
    found += [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md"))]
    return [path for path in found if BLOCK.search(path.read_text())]


def main() -> None:
    """Write all pages that change."""
    for path in pages():
        old = path.read_text()
        new = renewed(old)
        if new != old:
            path.write_text(new)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
