"""The page as a browser shows it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compared_runs import made_up
from finished_runs import finished_run, report, unlabelled_run, unmeasured_run
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from contune.analysis.comparison.page import comparison_page
from contune.analysis.measured import Measured

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and chromedriver (Debian: chromium, chromium-driver)"
)

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

RUNS = {
    "labelled": finished_run(),
    "no labels": unlabelled_run(),
    "no test split": unmeasured_run(),
    "long names": finished_run(
        300, 100, class_name="a_class_with_a_rather_long_unbroken_name_{}", name="/x" * 80 + "{}"
    ),
    "photos": finished_run(30, 12, side=100, channels=3, class_name="kind {}"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    assert CHROMIUM is not None
    assert DRIVER is not None
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> dict[str, Any]:
    return RUNS[request.param]


def show(browser: webdriver.Chrome, folder: Path, run: dict[str, Any], width: int = 1200) -> None:
    report(folder, run)
    open_page(browser, folder / "report.html", width)


def open_page(browser: webdriver.Chrome, path: Path, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())


def ask(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


def test_it_shows_everything_and_asks_for_nothing(
    browser: webdriver.Chrome, tmp_path: Path, run: dict[str, Any]
) -> None:
    show(browser, tmp_path, run)
    assert browser.title == "tcl on toy · contune"
    for measure in run["result"]["measures"]:
        assert f"{measure['top1']:.1f}" in ask(browser, "document.querySelector('header').innerText")
    assert ask(browser, "[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert ask(browser, "document.images.length") >= (0 if run["images"] is None else 8 * 7)
    sizes = "[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect())"
    assert ask(browser, f"{sizes}.every(box => box.width > 5 && box.height > 5)")
    entries = ask(browser, "performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in entries if not name.startswith("data:")] == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]  # selenium's is untyped


@pytest.mark.parametrize("width", [390, 800])
def test_nothing_sticks_out_sideways(
    browser: webdriver.Chrome, tmp_path: Path, run: dict[str, Any], width: int
) -> None:
    show(browser, tmp_path, run, width=width)
    assert ask(browser, "innerWidth") == width
    assert ask(browser, "document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 800, 1200])
@pytest.mark.parametrize("num_settings", [2, 15])
def test_numbers_of_a_comparison_are_in_view(
    browser: webdriver.Chrome, tmp_path: Path, width: int, num_settings: int
) -> None:
    folder = "/home/somebody/a_long_unbroken_name_of_a_folder/runs-of-last-week"
    policy = "augment.policy=a-policy-with-a-very-long-name-that-says-all-of-what-it-does"
    runs = [
        made_up(f"{folder}/{number}-{seed}", f"{policy}-{number}", seed=seed, linear=12.3 + 40 * seed + number,
                classifier_top1=11.0 + 30 * seed, classifier_protocol="classifier")
        for number in range(num_settings)
        for seed in range(3)
    ]  # fmt: skip
    (tmp_path / "page.html").write_text(comparison_page(runs), encoding="utf-8")
    open_page(browser, tmp_path / "page.html", width)
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    cells = "[...document.querySelectorAll('#accuracy .number-cell, #differences .number-cell')]"
    assert ask(browser, f"{cells}.length") > 5 * num_settings
    assert ask(browser, f"{cells}.filter(cell => cell.getBoundingClientRect().right > innerWidth).length") == 0
    assert ask(browser, f"{cells}.filter(cell => cell.scrollWidth > cell.clientWidth).length") == 0
    for name in ("accuracy", "differences"):
        heads = f"[...document.querySelectorAll('#{name} tbody th')].map(head => head.getBoundingClientRect().width)"
        assert min(ask(browser, heads)) > 60


def test_curves_stay_inside_their_cards(browser: webdriver.Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, finished_run(), width=390)
    inside = (
        "[...document.querySelectorAll('.curves text')].every(text => text.getBoundingClientRect().right <= innerWidth)"
    )
    assert ask(browser, inside)


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("as_card", [False, True])
def test_names_on_a_map_are_whole_and_off_each_other(
    browser: webdriver.Chrome, tmp_path: Path, width: int, as_card: bool
) -> None:
    run = finished_run(90, 6, class_name="WIDE Mannequin {}")
    if as_card:
        measured = Measured(
            images=run["images"], channels=1, class_names=run["class_names"], features=run["features_MD"],
            predicted=run["predicted_M"],
        )  # fmt: skip
        page = comparison_page([made_up("a"), made_up("b", "method.k1=1")], {"a": measured, "b": measured})
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        open_page(browser, tmp_path / "page.html", width)
    else:
        show(browser, tmp_path, run, width)
    box = "(node => (({left, right, top, bottom}) => [left, right, top, bottom])(node.getBoundingClientRect()))"
    left, right, top, bottom = ask(browser, f"{box}(document.querySelector('.map'))")
    labels = ask(browser, f"[...document.querySelector('.map').querySelectorAll('text')].map({box})")
    assert len(labels) == 6
    for place, (x0, x1, y0, y1) in enumerate(labels):
        assert left <= x0 < x1 <= right
        assert top <= y0 < y1 <= bottom
        for a0, a1, b0, b1 in labels[:place]:  # a line's box is a little higher than its letters
            assert x1 <= a0 or a1 <= x0 or min(y1, b1) - max(y0, b0) < 0.2 * (y1 - y0)


@pytest.mark.parametrize(("scheme", "brighter"), [("light", "background"), ("dark", "text")])
def test_colours_follow_the_system(browser: webdriver.Chrome, tmp_path: Path, scheme: str, brighter: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    show(browser, tmp_path, finished_run())
    style = "getComputedStyle(document.documentElement)"
    text, background = (
        sum(map(int, ask(browser, f"{style}.{name}.match(/\\d+/g).slice(0, 3)")))
        for name in ("color", "backgroundColor")
    )
    assert (background > text) == (brighter == "background")
