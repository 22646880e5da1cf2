"""Write the tables of results into the pages that contain them, and draw their figures again.

A page marks a table with the command that prints it, on a line of its own:

    <!-- planet-bayes table experiments/NAME.toml -->
    ...
    <!-- end of table -->

A figure of `planet-bayes figures` that is in a folder under ``results/`` is drawn again.

Run:  make tables     # tests/test_documents.py checks that nothing would change
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
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
    words = [str(ROOT / one) if (ROOT / one).exists() else one for one in shlex.split(command)]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main(words)
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


def figures() -> dict[Path, list[Path]]:
    """Return the figures under ``results/`` by their folder."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted((ROOT / "results").rglob("*.png")):
        found[path.parent].append(path)
    return found


def drawn(folder: Path, paths: Iterable[Path]) -> dict[Path, bytes]:
    """Return the figures of a folder of results, drawn from its other files."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.png"))
        with contextlib.redirect_stdout(io.StringIO()):
            if cli.main(["figures", str(copy)]):
                raise SystemExit(f"planet-bayes figures {folder} failed.")
        return {path: (copy / path.name).read_bytes() for path in paths}


def main() -> None:
    """Write all pages and figures that change."""
    for path in pages():
        old = path.read_text()
        new = renewed(old)
        if new != old:
            path.write_text(new)
            print(f"wrote {path.relative_to(ROOT)}")
    for folder, paths in figures().items():
        for path, picture in drawn(folder, paths).items():
            if picture != path.read_bytes():
                path.write_bytes(picture)
                print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
