"""A person at Dagster's pages: the grid, a launch over an L shape, the coverage, hold and release.

The tests stand in the order in which a person would try things; each leaves the days complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from backfill_assets.flights.catalogue import FLIGHTS

if TYPE_CHECKING:
    from backfill_assets_tests.browser.pages import Pages
    from backfill_assets_tests.recovery.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

CELLS = 23  # nine days of two airports, and five of the third


def committed(product: Product) -> int:
    return len(product.store.scan(FLIGHTS).committed)


def test_the_grid_shows_what_is_committed_and_no_more(pages: Pages) -> None:
    pages.grid()

    pages.expect_cells("Materialized", CELLS)
    pages.expect_cells("Failed", 0)


def test_the_coverage_shows_a_calendar(pages: Pages) -> None:
    picture = pages.picture()

    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth >= 100")


def test_launching_committed_days_again_ends_well_and_changes_nothing(
    pages: Pages, product: Product
) -> None:
    file = product.home / "store/flights/carrier/departures/v1/2013-01-08/JFK.parquet"
    before = file.stat()
    pages.grid()

    backfill = pages.launch("[2013-01-08...2013-01-09]")

    pages.expect_backfill(backfill, "COMPLETED_SUCCESS")
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_launch_over_an_l_shape_commits_nothing_open_and_says_when_it_closes(
    pages: Pages, product: Product
) -> None:
    # What is not materialized from the 3rd to the 11th: two days of LGA, which is not open yet,
    # and the 10th and 11th of all three airports, which have not closed.
    before = committed(product)
    pages.grid()

    backfill = pages.launch("[2013-01-03...2013-01-11]", missing_only=True)

    pages.expect_backfill(backfill, "COMPLETED_FAILED")
    pages.grid()
    pages.expect_cells("Failed", 6)
    pages.expect_cells("Materialized", CELLS + 2)  # reported once as not expected
    assert committed(product) == before
    pages.open_failed_run(backfill)
    message = pages.page.get_by_text("its day closes at 2013-01-11T08:00:00-05:00").first
    expect(message).to_be_visible()


def test_held_partitions_go_and_stay_away_until_they_are_released(
    pages: Pages, product: Product
) -> None:
    before = committed(product)
    chosen = "flights/carrier/departures/2013-01-07/*"
    form = f'ops:\n  hold:\n    config: {{partitions: "{chosen}", reason: "runway works"}}\n'

    pages.fill_in_job("hold_partitions", form)

    assert committed(product) == before - 3
    held = product.run("plan", "--explain", "flights/carrier/departures/2013-01-07/JFK")
    assert "is held: runway works" in held.stdout

    pages.fill_in_job(
        "release_partitions", f'ops:\n  release:\n    config: {{partitions: "{chosen}"}}\n'
    )

    for _ in range(36):
        if committed(product) == before:
            break
        pages.page.wait_for_timeout(5_000)
    assert committed(product) == before
