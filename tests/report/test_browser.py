"""The pages as a browser shows them: light, dark, and as wide as a phone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import compared_run, finished_run, report, unevaluated_run, unlabelled_run
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from contune.report.compare import comparison_page, grouped

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and chromedriver (Debian: chromium, chromium-driver)"
)

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
RUNS = {
    "labelled": finished_run(),
    "no labels": unlabelled_run(),
    "no test split": unevaluated_run(),
    "long names": finished_run(
        300, 100, class_name="a_class_with_a_rather_long_unbroken_name_{}", name="/x" * 80 + "{}"
    ),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    assert CHROMIUM is not None
    assert DRIVER is not None
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def show(browser: webdriver.Chrome, path: Path, width: int = 1200) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())


def ask(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


@pytest.mark.parametrize("name", RUNS)
def test_it_shows_everything_at_any_width_and_asks_for_nothing(
    name: str, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    run = RUNS[name]
    report(tmp_path, run)
    show(browser, tmp_path / "report.html")
    assert browser.title == "TCL on toy · contune"
    assert ask(browser, "[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert ask(browser, "document.images.length") >= (0 if run["images"] is None else 8 * 7)
    sizes = "[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect())"
    assert ask(browser, f"{sizes}.every(box => box.width > 5 && box.height > 5)")
    entries = ask(browser, "performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in entries if not name.startswith("data:")] == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]  # selenium's is untyped
    for width in (390, 800):
        show(browser, tmp_path / "report.html", width)
        assert ask(browser, "innerWidth") == width
        assert ask(browser, "document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1200])
def test_numbers_of_a_comparison_are_in_view(browser: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    folder = "/home/somebody/a_long_unbroken_name_of_a_folder/runs-of-last-week"
    policy = "augment.policy=a-policy-with-a-very-long-name-that-says-all-of-what-it-does"
    runs = [
        compared_run(f"{folder}/{number}-{seed}", f"{policy}-{number}", seed=seed, linear=12.3 + 40 * seed + number,
                     classifier=11.0 + 30 * seed)
        for number in range(4)
        for seed in range(3)
    ]  # fmt: skip
    (tmp_path / "page.html").write_text(comparison_page(grouped(runs)), encoding="utf-8")
    show(browser, tmp_path / "page.html", width)
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    cells = "[...document.querySelectorAll('#accuracy .number-cell')]"
    assert ask(browser, f"{cells}.length") > 20
    assert ask(browser, f"{cells}.filter(cell => cell.getBoundingClientRect().right > innerWidth).length") == 0


@pytest.mark.parametrize("width", [390, 1200])
def test_names_on_a_map_are_whole_and_off_each_other(browser: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    report(tmp_path, finished_run(90, 6, class_name="WIDE Mannequin {}"))
    show(browser, tmp_path / "report.html", width)
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
def test_colors_follow_the_system(browser: webdriver.Chrome, tmp_path: Path, scheme: str, brighter: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    report(tmp_path, unevaluated_run())
    show(browser, tmp_path / "report.html")
    style = "getComputedStyle(document.documentElement)"
    text, background = (
        sum(map(int, ask(browser, f"{style}.{name}.match(/\\d+/g).slice(0, 3)")))
        for name in ("color", "backgroundColor")
    )
    assert (background > text) == (brighter == "background")
