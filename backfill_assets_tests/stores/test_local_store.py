"""The local store keeps the promises of every store, in all formats and protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.stores.examples import (
    EWR,
    GROUP,
    JFK,
    a_store,
    publish,
    rows_of,
)
from backfill_assets_tests.stores.store_contract import PartitionStoreContract

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.stores.files.local import LocalPartitionStore


class TestLocalPartitionStore(PartitionStoreContract):
    @pytest.fixture(params=["parquet", "json"])
    def store(
        self, tmp_path: Path, request: pytest.FixtureRequest, protocol: str
    ) -> LocalPartitionStore:
        # On the disk, where flushing is real.
        store = a_store(tmp_path / "store", request.param, protocol)
        store.prepare()
        return store


def test_a_partition_stands_where_the_layout_says(root: Path) -> None:
    publish(a_store(root), [JFK])

    assert (root / "flights/carrier/departures/v1/2013-08-03/JFK.parquet").is_file()
    assert a_store(root).location(JFK) == (
        f"{root}/flights/carrier/departures/v1/2013-08-03/JFK.parquet"
    )


def test_what_is_published_leaves_nothing_in_an_attempt_that_goes_on(
    root: Path, protocol: str
) -> None:
    store = a_store(root, protocol=protocol)
    publish(store, [EWR], [1])
    with store.attempt("run") as attempt:
        for partition in GROUP:
            attempt.stage(partition, rows_of(partition, [1]))
        attempt.publish()
        left = [path.name for path in (root / ".attempts" / attempt.name).iterdir()]

    assert left == ["lock"]
