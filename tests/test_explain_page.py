"""The page of an episode in a real browser: what it shows are the figures that it holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explaining import NEEDS_BROWSER, PIXELS, SENSORS, Browser, browser, trained
from planet_bayes import cli
from planet_bayes.diagnostics.explain import html
from planet_bayes.diagnostics.explain.images import unpacked
from tiny_run import replaced

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = trained(SENSORS, tmp_path_factory.mktemp("sensors") / "run")
    assert cli.main(["explain", str(folder)]) == 0
    return folder / "explain.html"


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = trained(PIXELS, tmp_path_factory.mktemp("pixels") / "run")
    assert cli.main(["explain", str(folder)]) == 0
    return folder / "explain.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser(viewport={"width": 1200, "height": 900}) as found:
        yield found


@pytest.fixture
def shown(chromium: Browser) -> Iterator[Browser]:
    """A browser that must not complain, and must not ask for anything."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.page.emulate_media(media="screen", color_scheme="light")
    yield chromium
    assert chromium.complaints == []
    assert chromium.outside == []


def figures(path: Path) -> dict[str, Any]:
    return html.figures(path.read_text())


def near(shown: list[float | None], stored: Any) -> None:
    values = [np.nan if value is None else value for value in shown]
    assert values == pytest.approx(np.asarray(stored).tolist(), rel=1e-6, abs=1e-6, nan_ok=True)


def check_charts(shown: Browser, made: dict[str, Any], step: int) -> None:
    """Compare what the panels show with the figures of a step."""
    sure, plans = made["sure"], made["plans"]
    near(shown.trace("ahead", "predicted"), unpacked(sure["mean"])[step])
    near(shown.trace("ahead", "realised"), unpacked(sure["real"])[step])
    near(shown.trace("ahead", "member 2"), unpacked(sure["members"])[step, 1])
    mean = unpacked(plans["mean"])[step]  # [M, H, A]
    for component in range(made["components"]):
        expected = mean[component, :, 0].clip(-1, 1)
        near(shown.trace("actions", f"component {component + 1}"), expected)
    kept = shown.page.locator("#components tr.kept td").all_inner_texts()
    assert kept[0] == str(plans["heaviest"][step] + 1)
    assert kept[1].strip() == f"{unpacked(plans['weight'])[step].max():.2f}"
    assert len(shown.page.locator("#components tr.dead").all()) == sum(plans["dead"][step])
    merged = sum(one >= 0 for one in plans["merged"][step])
    assert len(shown.page.locator("#components tr.merged").all()) == merged
    assert f"Component {plans['heaviest'][step] + 1} is kept" in shown.page.inner_text("#why")
    path = unpacked(made["latent"][0]["path"])
    near(shown.trace("map", "now", "x"), path[step, :1])
    near(shown.trace("map", "what then happened"), path[step : step + made["horizon"] + 1, 1])
    for name in ("confidence", *(["traces"] if made["vectors"] else [])):
        assert shown.get(f"document.getElementById('{name}').layout.shapes[0].x0") == step
    assert f"step {step} of {made['steps'] - 1}" in shown.page.inner_text("#now")


def test_the_slider_and_the_keys_move_every_panel(sensors: Path, shown: Browser) -> None:
    made = figures(sensors)
    shown.open(sensors)
    check_charts(shown, made, 0)
    shown.page.locator("#time").fill("9")
    shown.until("page.rendered === 9")
    check_charts(shown, made, 9)
    imagined = unpacked(made["vectors"][0]["imagined"])[9, 1, :, 0]
    decoded = unpacked(made["vectors"][0]["decoded"])[9, 1, 0]
    near(shown.trace("fan", "member 2"), [decoded, *imagined])
    real = unpacked(made["vectors"][0]["real"])[: 9 + made["horizon"] + 1, 0]
    near(shown.trace("fan", "what really happened"), real)
    shown.page.locator("#time").focus()
    shown.press("ArrowRight", 10)
    check_charts(shown, made, 10)
    shown.press("ArrowLeft", 9)
    shown.page.locator("#title").click()
    shown.press("ArrowRight", 10)
    shown.press("End", made["steps"] - 1)
    check_charts(shown, made, made["steps"] - 1)
    shown.press("ArrowRight", made["steps"] - 1)
    shown.press("Home", 0)


def test_space_plays_and_pauses(sensors: Path, shown: Browser) -> None:
    shown.open(sensors)
    shown.page.keyboard.press("Space")
    shown.until("page.rendered >= 2")
    shown.page.keyboard.press("Space")
    assert shown.get("page.playing") is None
    step = shown.get("page.step")
    shown.page.wait_for_timeout(300)
    assert shown.get("page.step") == step
    shown.page.click("#play")
    shown.until("page.playing === null && page.step === page.steps - 1")  # it ends by itself


def test_the_first_screen_says_what_it_is(sensors: Path, shown: Browser) -> None:
    made = figures(sensors)
    shown.open(sensors)
    tiles = shown.page.locator("#tiles").inner_text()
    assert f"{made['return']:.1f}" in tiles or f"{made['return']:.2f}" in tiles
    assert "random actions" in tiles
    assert "zero actions" in tiles
    assert made["task"] in shown.page.inner_text("h1")
    marks = shown.page.locator("#marks path").count()
    assert marks == len(made["sure"]["left"])
    assert shown.page.locator("#remark").is_hidden()
    for section in shown.page.locator("section").all():
        assert section.locator("h2").count() == 1
        assert section.locator(".how").first.inner_text().endswith(".")
    near(shown.trace("curve", "training"), [pair[1] for pair in made["curve"]["train_return"]])
    assert shown.page.inner_text("#command") == made["command"]


def test_the_map_has_other_members_and_colours_and_a_peek(sensors: Path, shown: Browser) -> None:
    made = figures(sensors)
    shown.open(sensors)
    shown.page.select_option("#view", label="member 2")
    shown.page.select_option("#colour", "disagreement")
    shown.until("document.getElementById('map').data[1].marker.colorbar.title.text != 'time'")
    near(shown.trace("map", "beliefs", "x"), unpacked(made["latent"][2]["path"])[:, 0])
    near(shown.trace("map", "beliefs", "marker.color"), unpacked(made["sure"]["disagreement"]))
    shown.get(
        "document.getElementById('map').emit('plotly_hover', "
        "{points: [{customdata: 4}], event: {clientX: 9, clientY: 9}})"
    )
    assert "step 4" in shown.page.inner_text("#peek")
    assert shown.page.locator("#peek img").get_attribute("src") == made["frames"][4]


def test_dots_have_an_edge_and_the_peek_stays_in_the_window(sensors: Path, shown: Browser) -> None:
    """The first colour is that of a dark page, and a picture above values is taller than most."""
    shown.open(sensors)
    place = "document.getElementById('map')"
    edge = shown.get(f"{place}.data.find((one) => one.name === 'beliefs').marker.line")
    assert edge["width"] > 0
    assert edge["color"] == shown.get("colour('soft')")
    shown.get(
        f"{place}.emit('plotly_hover', {{points: [{{customdata: 4}}], "
        "event: {clientX: window.innerWidth - 5, clientY: window.innerHeight - 5}})"
    )
    shown.until("document.querySelector('#peek img').complete")
    box = shown.page.locator("#peek").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1200
    assert box["y"] + box["height"] <= 900


def test_the_mouse_over_a_dot_shows_its_frame(sensors: Path, shown: Browser) -> None:
    shown.open(sensors)
    shown.page.locator("#map").scroll_into_view_if_needed()
    dot = shown.page.locator("#map .trace").nth(1).locator(".point").nth(6).bounding_box()
    assert dot is not None
    shown.page.mouse.move(dot["x"] + dot["width"] / 2 - 20, dot["y"] - 20)
    shown.page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    shown.until("!document.getElementById('peek').hidden")
    step = int(shown.page.inner_text("#peek").split()[1])
    source = shown.page.locator("#peek img").get_attribute("src")
    assert source == figures(sensors)["frames"][step]


def test_the_numbers_of_merged_components_do_not_cover_each_other(
    sensors: Path, shown: Browser
) -> None:
    made = figures(sensors)
    step = next(t for t, row in enumerate(made["plans"]["merged"]) if max(row) >= 0)
    shown.open(sensors)
    shown.get(f"page.moveTo({step})")
    shown.until(f"page.rendered === {step}")
    for component, merged in enumerate(made["plans"]["merged"][step]):
        labels = shown.trace("actions", f"component {component + 1}", "text")
        assert any(labels) == (merged < 0)


def changed(path: Path, **sure: Any) -> Path:
    """Return a page whose figures of how sure the agent is are others."""
    made = figures(path)
    target = path.with_name("changed.html")
    target.write_text(html.page({**made, "sure": {**made["sure"], **sure}}, "explain"))
    return target


def test_the_page_says_how_much_a_calibrated_band_holds(sensors: Path, shown: Browser) -> None:
    shown.open(changed(sensors, calibrated=True, level=0.9))
    assert "steps left the calibrated 90 % band" in shown.page.inner_text("#tiles")
    assert "to hold 90 % of what happens" in shown.page.inner_text("#sure-how")
    assert len(shown.trace("ahead", "calibrated 90 % band", "x")) == 8


def test_a_short_episode_of_one_member_claims_nothing(tmp_path: Path, shown: Browser) -> None:
    model = {"num_members": 1}
    short = replaced(SENSORS, model=model, env={"max_steps": 3}, collect={"episodes": 0})
    folder = trained(replaced(short, learn={"sequence_length": 2}), tmp_path / "run")
    assert cli.main(["explain", str(folder)]) == 0
    shown.open(folder / "explain.html")
    assert "too short to fit a line: that takes 20 steps" in shown.page.inner_text("#probe-how")
    assert "does not move" not in shown.page.inner_text("#readings")
    assert "there is no band" in shown.page.inner_text("#sure-how")
    assert shown.page.locator("#members-how").is_hidden()
    assert shown.page.locator("#colour option").all_inner_texts() == ["time", "reward"]
    titles = shown.page.locator("#confidence .annotation-text").all_text_contents()
    assert titles
    assert not any("disagreement" in title for title in titles)
    assert shown.get("document.getElementById('fan').layout.xaxis.range[0]") == 0


def test_the_page_of_pixels_shows_films(pixels: Path, shown: Browser) -> None:
    made = figures(pixels)
    (image,) = made["images"]
    shown.open(pixels)
    for step in (0, 5):
        shown.get(f"page.moveTo({step})")
        shown.until(f"page.rendered === {step}")
        check_charts(shown, made, step)
        tiles = shown.page.locator("#strips .tile").all()
        count = len(image["steps"])
        assert len(tiles) == (made["members"] + 1) * count
        for tile in tiles[:-count]:
            assert image["sheets"][step] in (tile.get_attribute("style") or "")
        for ahead, tile in zip(image["steps"], tiles[-count:], strict=True):
            style = tile.get_attribute("style") or ""
            over = step + ahead > made["steps"]
            assert over == ("over" in (tile.get_attribute("class") or ""))
            assert over or image["frames"][step + ahead] in style
        large = shown.page.locator("#saw-images .large").get_attribute("style") or ""
        assert image["frames"][step] in large
    sizes = shown.get(
        "(async () => { const one = new Image(); one.src = page.data.images[0].sheets[0]; "
        "await one.decode(); return [one.width, one.height]; })()"
    )
    assert sizes == [32 * (1 + len(image["steps"])), 32 * made["members"]]


def test_a_recorded_episode_says_that_the_agent_did_not_act(sensors: Path, shown: Browser) -> None:
    target = sensors.with_name("stored.html")
    words = ["explain", str(sensors.parent), "--episode", "0", "--output", str(target)]
    assert cli.main(words) == 0
    shown.open(target)
    assert "did not act" in shown.page.inner_text("#remark")
    assert "would be kept" in shown.page.inner_text("#why")


def test_dark_print_and_phone_keep_the_charts(sensors: Path, shown: Browser) -> None:
    shown.open(sensors)
    ink = "getComputedStyle(document.body).color"
    light = shown.get(ink)
    line = "document.getElementById('actions').layout.font.color"
    drawn = shown.get(line)
    shown.page.emulate_media(color_scheme="dark")
    shown.until(f"{line} !== '{drawn}'")
    assert shown.get(ink) != light
    shown.page.emulate_media(color_scheme="dark", media="print")
    shown.until(f"{line} === '#000'")
    dashes = shown.get(
        "document.getElementById('fan').data.slice(0, 3).map((one) => one.line.dash || 'solid')"
    )
    assert len(set(dashes)) == 3  # lines differ without colours
    for section in shown.page.locator("section").all():  # a sheet has about 690 pixels
        for drawn in section.locator(".main-svg").all():
            assert float(drawn.get_attribute("width") or "0") <= 660
    assert len(shown.page.pdf(format="A4")) > 10_000
    shown.page.emulate_media(color_scheme="light", media="screen")
    shown.page.set_viewport_size({"width": 390, "height": 800})
    shown.until("document.documentElement.scrollWidth <= 390")
    shown.until("document.getElementById('ahead')._fullLayout.width < 390")  # no longer the sheet's
    for chart in ("traces", "fan", "confidence", "ahead", "actions"):
        cut_off = shown.get(
            f"Array.from(document.querySelectorAll('#{chart} .annotation-text')).filter((one) => "
            f"one.getBoundingClientRect().right > document.getElementById('{chart}')"
            ".getBoundingClientRect().right).map((one) => one.textContent)"
        )
        assert cut_off == []
    tops = shown.get(
        "['saw', 'expects', 'plans', 'sure', 'latent', 'probe', 'run'].map("
        "(id) => document.getElementById(id).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    shown.page.set_viewport_size({"width": 1200, "height": 900})
