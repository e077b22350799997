"""Each process is killed alone, and the next work is done all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.recovery.running import Role, kill
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from backfill_assets_tests.recovery.running import Product

FILE = "flights/carrier/departures/v1/2013-01-11/JFK.parquet"
DONE_SECONDS = 180
COMES_BACK_SECONDS = 60


@pytest.mark.timeout(1_200)  # half a dozen recoveries, on a busy machine too
def test_work_is_done_after_any_single_process_was_killed(complete_product: Product) -> None:
    product = complete_product
    product.up()
    product.wait_until_it_answers()
    for role in (Role.CODE_SERVER, Role.DAEMON, Role.WEBSERVER, Role.POSTMASTER, Role.KEEPER):
        # Of several in one role too: a parent may live on without the child that does the work.
        for place in range(len(product.processes()[role])):
            before = product.processes()[role]
            kill(before[place])
            (product.store.root / FILE).unlink()
            wait_for(
                f"work after {role} number {place} was killed",
                product.is_complete,
                seconds=DONE_SECONDS,
                every=0.5,
            )
            wait_for(
                f"{role} again",
                lambda role=role, before=before: len(product.processes()[role]) == len(before),
                seconds=COMES_BACK_SECONDS,
                every=0.5,
            )
    product.wait_until_it_answers()
    assert product.stop() == 0
