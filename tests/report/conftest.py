"""Pages of every kind, made once, and a browser that opens them."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from made_pages import Made, make

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    from zerolm.diagnosis import examine, opening

    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "attempt", opening.opened)  # here, as ``opened_here`` has it for a test
        patch.setenv("ZEROLM_CACHE", str(folder / "cache"))
        yield make(folder)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    from playwright.sync_api import sync_playwright

    paths = [os.environ.get("ZEROLM_CHROMIUM"), *map(shutil.which, BROWSERS)]
    path = next((path for path in paths if path), None)
    if path is None:
        pytest.skip(f"no browser: ZEROLM_CHROMIUM names none, and there is no {', '.join(BROWSERS)}")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"] if root else []
        )
        yield browser
        browser.close()
