"""What pruning must keep: all that is expected, or will be when its day closes, and no more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.leftovers import kept_units
from backfill_assets_tests.core.strategies import Situation, all_partitions, situations


@given(situations(), st.none() | st.integers(1, 10))
def test_what_is_kept_is_what_is_expected_or_will_be(
    situation: Situation, retention_days: int | None
) -> None:
    catalogue = replace(situation.catalogue, retention_days=retention_days)
    latest = catalogue.latest_closed_day(situation.now)
    for partition in all_partitions(catalogue):
        kept = kept_units(catalogue, partition.query, partition.day, latest)
        is_expected = catalogue.why_not_expected(partition, latest) is None
        assert bool(kept & catalogue.unit_bits[partition.unit]) == is_expected
        assert kept < 1 << len(catalogue.units)
