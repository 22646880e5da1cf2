"""Pages that the site generates when it is built.

The settings and the presets come from the dataclasses of ``planet_bayes.config``, so these pages
cannot contradict the code. The contributing guide and the changelog are the files at the root of
the repository. Nothing is written to ``docs/``: all of these are virtual files.

Links in ``docs/`` work in a checkout too. The files of the settings and presets there say how to
generate these pages. Links to files outside of ``docs/`` are changed to pages of the site.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import posixpath
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "CONTRIBUTING.md": "development/contributing.md",
    "CHANGELOG.md": "development/changelog.md",
    **{
        str(path.relative_to(ROOT)): f"images/{'-'.join(path.relative_to(ROOT).parts[1:])}"
        for path in sorted((ROOT / "results").rglob("*.png"))
    },
}
"""Files outside of ``docs/`` that pages link to, and their paths in the site."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting, for the reference pages."""

    name: str
    """Dotted, as on the command line."""
    annotation: str
    """Its type, as in the source."""
    text: str
    """The string after the field: its documentation."""
    values: dict[str, Any]
    """Its value in each preset."""


@dataclasses.dataclass(frozen=True)
class Group:
    """A dataclass of settings."""

    name: str
    """Name of the field of the root configuration; empty for the root itself."""
    text: str
    """First paragraph of the docstring of the class."""
    settings: list[Setting]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        placeholder = files.get_file_from_path(path)
        if placeholder is not None:
            files.remove(placeholder)
        files.append(File.generated(config, path, content=text))
    for source, target in OUTSIDE.items():
        if not source.endswith(".md"):
            files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page whose links to files outside of ``docs/`` are links to pages of the site."""
    return site_links(markdown, posixpath.dirname(page.file.src_uri))


def site_links(markdown: str, folder: str) -> str:
    """Return the text of a page in ``folder`` of ``docs/``, with links that work in the site."""
    for source, target in OUTSIDE.items():
        outside = posixpath.relpath(f"/{source}", f"/docs/{folder}")
        inside = posixpath.relpath(f"/{target}", f"/{folder}")
        markdown = re.sub(rf"\]\({re.escape(outside)}(?=[)#])", f"]({inside}", markdown)
    return markdown


def pages() -> dict[str, str]:
    """Return the Markdown of every generated page, by its path in the site."""
    groups = read_groups()
    return {
        "reference/settings.md": settings_page(groups),
        "reference/presets.md": presets_page(groups),
        "development/contributing.md": root_page("CONTRIBUTING.md"),
        "development/changelog.md": root_page("CHANGELOG.md"),
    }


def root_page(name: str) -> str:
    """Return a Markdown file of the repository's root, with links that work in the site."""
    return (ROOT / name).read_text().replace("](docs/", "](../")


def read_groups() -> list[Group]:
    """Return the settings of the root configuration, then those of each of its groups."""
    source = str(ROOT / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
    module = importlib.import_module("planet_bayes.config")
    presets: dict[str, Any] = module.PRESETS
    root = next(iter(presets.values()))
    nested = [
        entry.name
        for entry in dataclasses.fields(root)
        if dataclasses.is_dataclass(getattr(root, entry.name))
    ]
    groups = [_read_group("", presets, skip=nested)]
    for name in nested:
        parts = {preset: getattr(config, name) for preset, config in presets.items()}
        groups.append(_read_group(name, parts))
    return groups


def _read_group(name: str, presets: dict[str, Any], skip: list[str] | None = None) -> Group:
    kind = type(next(iter(presets.values())))
    described = describe_fields(kind)
    settings = []
    for entry in dataclasses.fields(kind):
        if entry.name in (skip or []):
            continue
        annotation, text = described[entry.name]
        values = {preset: getattr(part, entry.name) for preset, part in presets.items()}
        label = f"{name}.{entry.name}" if name else entry.name
        settings.append(Setting(label, annotation, text, values))
    paragraph = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    return Group(name, " ".join(paragraph.split()), settings)


def describe_fields(kind: type[Any]) -> dict[str, tuple[str, str]]:
    """Return the annotation and the documentation of each field of a dataclass.

    A field is documented by the string that follows it. Base classes count too.
    """
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    text = " ".join(inspect.cleandoc(str(after.value.value)).split())
                found[statement.target.id] = (ast.unparse(statement.annotation), text)
    return found


def show(value: Any) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, tuple | list):
        return " ".join(show(item) for item in value) or "(none)"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return "(none)" if value in ("", None) else str(value)


def first_sentence(text: str) -> str:
    """Return the first sentence of a setting's documentation."""
    return re.split(r"(?<=[.;])\s", text, maxsplit=1)[0].rstrip(".;:")


def settings_page(groups: list[Group]) -> str:
    """Return the page with every setting, its type and its value in each preset."""
    names = list(next(iter(groups[0].settings)).values)
    count = sum(len(group.settings) for group in groups)
    lines = [
        "# Settings",
        "",
        f"There are {count} settings in {len(groups) - 1} groups. Each has a flag on the command "
        "line: `learn.ema_decay` is `--learn.ema-decay`. A boolean is a pair of flags without a "
        "value: `--env.original` and `--env.no-original`. In Python, a group is a frozen "
        "dataclass; use `dataclasses.replace` to change a setting.",
        "",
        "`planet-bayes train --help` shows the settings that people change most often; "
        "`--help-all` shows all of them. Every run saves its settings in `config.json`. This page "
        "is generated from the source.",
        "",
    ]
    for group in groups:
        title = f"`{group.name}`" if group.name else "Root"
        lines += [f"## {title} {{ #{group.name or 'root'} }}", "", group.text, ""]
        for setting in group.settings:
            values = [f"{name} `{show(setting.values[name])}`" for name in names]
            lines += [
                f"### `{setting.name}` {{ #{setting.name} }}",
                "",
                f"Type `{setting.annotation}`. Presets: {', '.join(values)}.",
                "",
                setting.text,
                "",
            ]
    return "\n".join(lines)


def presets_page(groups: list[Group]) -> str:
    """Return the page with the settings in which the presets differ."""
    names = list(next(iter(groups[0].settings)).values)
    lines = [_PRESETS_INTRODUCTION, f"| setting | {' | '.join(names)} | meaning |"]
    lines.append("|---" * (len(names) + 2) + "|")
    for group in groups:
        for setting in group.settings:
            if len({repr(value) for value in setting.values.values()}) == 1:
                continue
            cells = [show(setting.values[name]) for name in names]
            meaning = first_sentence(setting.text).replace("|", "\\|")
            link = f"[`{setting.name}`](settings.md#{setting.name})"
            lines.append(f"| {link} | {' | '.join(cells)} | {meaning} |")
    lines += ["", _PRESETS_END.format(differences=method_differences())]
    return "\n".join(lines)


def method_differences() -> str:
    """Return the rows of the settings in which methods differ beyond E and M, by preset."""
    from planet_bayes.config import METHOD_PLANNERS, PRESETS

    rows = [
        f"| `{preset}` | `{method}` | `planner.{name}` | {value} | "
        f"{getattr(PRESETS[preset].planner, name)} |"
        for (preset, method), changes in METHOD_PLANNERS.items()
        for name, value in changes.items()
    ]
    others = [name for name in PRESETS if name not in {preset for preset, _ in METHOD_PLANNERS}]
    return "\n".join([*rows, *(f"| `{name}` | all | none | | |" for name in others)])


_PRESETS_INTRODUCTION = """# Presets

A preset is a complete set of settings for a purpose. `planet-bayes train --preset NAME` starts
from it, and every flag changes one setting. In Python, `planet_bayes.PRESETS["quick"]` is a
[`Config`](settings.md).

- **`quick`** learns from sensors in minutes on one CPU core. `make train` uses it.
- **`laptop`** learns from 32×32 pixels in hours on one CPU core.
- **`small`** is the paper's algorithm at a size that a CPU core can run, from sensors. It is for
  comparisons of the paper's methods. `quick` learns more from as many episodes.
- **`paper`** has the sizes of the paper: 64×64 pixels, for a GPU. It has not been run to an end,
  because no GPU was available.

`small` has smaller networks, batches and numbers of trajectories than `paper`. It departs from the
paper in `loss.kl_balance` in place of free nats and in `model.normalise` alone. `quick` and
`laptop` depart from the paper where that helps a small model on a CPU. The [lab
notebook](../development/lab-notebook/index.md) has the evidence for each departure. This page is
generated from the source and shows every setting in which the presets
differ; all other values are on the [settings page](settings.md).
"""

_PRESETS_END = """All presets do two things that PlaNet's code does and the paper's algorithm does
not mention. They add noise to the actions of collected episodes. They use the mean of the reward
head instead of a sampled reward.

## Methods

`--method NAME` turns a preset into one of the four methods of the paper's ablation. It sets
`model.num_members` (E) and `planner.num_components` (M) to 1 where the method has none. The number
of imagined trajectories per iteration stays the same. The method is not stored: `config.method`
derives its name from E and M.

| `--method` | model uncertainty | action uncertainty | |
|---|---|---|---|
| `planet_bayes` | E = 5 | M = 5 | the default |
| `e_only` | E = 5 | M = 1 | |
| `m_only` | E = 1 | M = 5 | |
| `planet` | E = 1 | M = 1 | PlaNet; in `small` and `paper` with its own planner |

These settings differ between the four methods beyond E and M:

| preset | method | setting | value | the other methods |
|---|---|---|---|---|
{differences}

In `quick` and `laptop` the number of candidates decays from iteration to iteration, down to 30.
With E = 5 the decay reaches this limit: a plan has 960 trajectories, against 832 with E = 1. Set
`--planner.candidate-decay 1` to compare methods at equal cost.
"""
