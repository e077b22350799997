"""One running product of nine closed days, and a Chromium that looks at it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from backfill_assets_tests.browser.pages import Pages
from backfill_assets_tests.postgres_fixtures import temporary_folder
from backfill_assets_tests.recovery.running import Product
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

# Nine days are closed, of which LGA has five: 23 cells a query, and 12 queries.
CLOCK = "2013-01-10T12:00:00-05:00"
COMPLETE_SECONDS = 180
# Without these a Chromium asks the network for things of its own.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """The product, complete for its clock."""
    with temporary_folder("backfill-browser-") as folder:
        made = Product(home=folder / "home", settings={"BACKFILL_CLOCK": CLOCK})
        made.up()
        try:
            wait_for("nine days", lambda: "complete" in made.output, seconds=COMPLETE_SECONDS)
            yield made
        finally:
            made.end()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium of the system."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    assert path is not None, "no Chromium is installed; `make browser` installs one"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def pages(product: Product, browser: Browser) -> Iterator[Pages]:
    """Dagster's pages of the product."""
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.set_default_timeout(60_000)
    yield Pages(page, f"http://127.0.0.1:{product.port}")
    page.close()
