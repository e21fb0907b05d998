"""The report as a browser shows it: complete, without a request, and as narrow as a phone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import finished_run, report, unevaluated_run
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

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
