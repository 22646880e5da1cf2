"""Tiny runs and a browser, for the tests of pages."""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.envs import EnvConfig
from planet_bayes.models import ModelConfig
from tiny_run import TINY, replaced

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TIMEOUT_MS = 180_000
"""A page of megabytes takes long to load on a machine that is busy."""
NEEDS_BROWSER = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; scripts/chromium.sh installs it"
)
SENSORS: Config = replaced(TINY, collect={"episodes": 1}, env={"max_steps": 24})
PIXELS: Config = dataclasses.replace(
    replaced(TINY, collect={"episodes": 0}, learn={"updates_per_episode": 1}),
    env=EnvConfig(observation=("pixels",), image_size=32, blur=5, max_steps=8),
    model=ModelConfig(
        num_members=2, deter=8, stoch=4, hidden=8, image_depth=2, reward_units=8, normalise=True
    ),
)


def trained(config: Config, folder: Path) -> Path:
    """Train a run and return its folder."""
    return pb.train(config, folder)[0]


class Browser:
    """A page in a real browser, with all that it complains about and all that it asks for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> None:
        """Open a file and wait until it is drawn."""
        self.page.goto(path.as_uri())
        self.until("page.rendered === 0")

    def get(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self.page.evaluate(expression)

    def until(self, expression: str) -> None:
        """Wait until an expression is true. The page forbids Playwright's own way, `eval`."""
        for _ in range(1200):
            if self.get(expression):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never true: {expression}")

    def press(self, key: str, step: int) -> None:
        """Press a key and wait until the page shows a step."""
        self.page.keyboard.press(key)
        self.until(f"page.rendered === {step}")

    def trace(self, chart: str, name: str, axis: str = "y") -> list[float | None]:
        """Return the values of a trace of a chart, by its name."""
        found = f"document.getElementById('{chart}').data.find((one) => one.name === '{name}')"
        return self.get(f"Array.from({found}.{axis})")

    @property
    def outside(self) -> list[str]:
        """What was asked for beside files and what the page itself holds."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


@contextmanager
def browser(**options: Any) -> Iterator[Browser]:
    """Yield a browser that shows nothing yet."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        context = chromium.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        try:
            yield Browser(context.new_page())
        finally:
            context.close()
            chromium.close()
