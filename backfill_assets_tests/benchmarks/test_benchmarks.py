"""Every benchmark on small work, so that none rots; nothing here is timed."""

import pytest

from backfill_assets_tests.benchmarks.__main__ import COMPARISONS, run
from backfill_assets_tests.benchmarks.measuring import Comparison


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_runs_on_small_work_and_times_every_candidate(name: str) -> None:
    found = run(name, small=True)

    assert found.parts > 0
    assert all(seconds for seconds in found.seconds.values())
    assert len(found.ratios()) == len(found.seconds) - 1


def test_a_ratio_says_how_much_longer_another_candidate_took_than_the_product() -> None:
    found = Comparison(
        name="x", unit="file", parts=1, seconds={"product": [1, 9, 2], "other": [4, 6, 8]}
    )

    assert found.ratios() == {"other": 3}
