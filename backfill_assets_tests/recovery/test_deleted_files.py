"""Files are deleted while everything runs, and just they are made again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.recovery.watcher import stamps

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets_tests.recovery.running import Product

MADE_AGAIN_SECONDS = 180


def delete_some(root: Path) -> set[str]:
    """Delete single files, a day of one query, and a day of all; return what was deleted."""
    before = {path for path, _ in stamps(root)}
    (root / "flights/carrier/departures/v1/2013-01-11/JFK.parquet").unlink()
    (root / "flights/hour/arrival_delay/v1/2013-01-02/EWR.parquet").unlink()
    shutil.rmtree(root / "flights/destination/cancellations/v1/2013-01-07")
    for folder in root.glob("flights/*/*/v1/2013-01-04"):
        shutil.rmtree(folder)
    return before - {path for path, _ in stamps(root)}


def test_just_the_deleted_files_are_made_again(
    complete_product: Product, year: dict[str, bytes]
) -> None:
    product = complete_product
    root = product.store.root
    before = dict(stamps(root))
    product.up()
    product.wait_until_it_answers()
    runs = len(product.runs())

    deleted = delete_some(root)
    wait_for("the deleted files", product.is_complete, seconds=MADE_AGAIN_SECONDS, every=0.5)

    assert len(deleted) == 1 + 1 + 3 + 2 * 12
    after = dict(stamps(root))
    assert {path for path in after if after[path] != before[path]} == deleted
    assert all(content == year[path] for path, content in files_of(root).items())
    assert len(product.runs()) > runs
    assert product.stop() == 0


def test_a_complete_store_is_left_alone(complete_product: Product) -> None:
    product = complete_product
    before = dict(stamps(product.store.root))

    product.up("--until-complete")

    assert product.exit_code(seconds=MADE_AGAIN_SECONDS) == 0
    assert dict(stamps(product.store.root)) == before
    wait_for("the end of all processes", product.is_gone, seconds=30, every=0.2)
