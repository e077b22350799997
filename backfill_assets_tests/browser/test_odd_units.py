"""Every unit that the catalogue accepts is found by typing it in the launch dialog, and made."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from backfill_assets.resources.settings import PROJECT
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.postgres.ports import free_port
from backfill_assets_tests.browser.odd_shops import ODD, SHOPS, STORE_VARIABLE
from backfill_assets_tests.browser.pages import Pages
from backfill_assets_tests.postgres_fixtures import temporary_folder
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

# No daemon: a run that a person launches begins at once.
DAGSTER_YAML = """
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator:
  module: dagster._core.run_coordinator
  class: DefaultRunCoordinator
"""
MADE_SECONDS = 120
ASSET = "shops/article/sold"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Return the folder of a Dagster and its store."""
    with temporary_folder("backfill-odd-") as folder:
        (folder / "dagster.yaml").write_text(DAGSTER_YAML)
        yield folder


@pytest.fixture(scope="module")
def store(home: Path) -> LocalPartitionStore:
    """Return the shops' store, empty at first."""
    store = LocalPartitionStore(home / "store", [SHOPS])
    store.prepare()
    return store


@pytest.fixture(scope="module")
def port(home: Path, store: LocalPartitionStore) -> Iterator[int]:
    """Run Dagster's pages over the shops, and return their port."""
    port = free_port()
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER"))}
    mine = {"DAGSTER_HOME": str(home), STORE_VARIABLE: str(store.root), "PYTHONPATH": str(PROJECT)}
    with (home / "webserver.txt").open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dagster_webserver", "--host", "127.0.0.1"),
                *("--port", str(port), "-m", "backfill_assets_tests.browser.odd_shops"),
            ],
            cwd=home,
            env=ours | mine,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with process:
        try:
            yield port
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            psutil.wait_procs(children, timeout=30)
            for child in children:
                if child.is_running():
                    child.kill()
    print((home / "webserver.txt").read_text()[-5_000:])  # noqa: T201 - for a failure


@pytest.fixture
def pages(port: int, browser: Browser) -> Iterator[Pages]:
    """Dagster's pages of the shops."""
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.set_default_timeout(60_000)
    pages = Pages(page, f"http://127.0.0.1:{port}")
    wait_for("the pages", pages.answer, seconds=MADE_SECONDS, every=0.5)
    yield pages
    page.close()


def committed(store: LocalPartitionStore) -> set[str]:
    return {f"{p.query.value_type}/{p.key}" for p in store.scan(SHOPS).committed}


def test_any_unit_can_be_typed_picked_and_launched_and_no_other_is_made(
    pages: Pages, store: LocalPartitionStore
) -> None:
    for unit in ODD:
        pages.grid(ASSET)
        pages.launch_one("2024-03-04", unit)

    expected = {f"sold/2024-03-04|{unit}" for unit in ODD}
    wait_for("the files", lambda: committed(store) >= expected, seconds=MADE_SECONDS)
    assert committed(store) == expected
    pages.grid(ASSET)
    pages.expect_cells("Materialized", len(ODD))
