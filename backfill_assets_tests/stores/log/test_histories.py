"""Ten thousand random histories: nothing happens twice, nothing is lost, no number comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets_tests.stores.log.simulator import Simulator

if TYPE_CHECKING:
    from backfill_assets_tests.stores.log.world import World

HISTORIES = 10_000
STEPS = 25


def test_ten_thousand_histories_end_as_the_model_says(world: World) -> None:
    seen = Simulator(world, HISTORIES, seed=1).run(STEPS)

    # What was to happen did happen, often.
    assert seen["complete"] > 1_000  # came back late, and were fenced
    assert seen["supervised"] > 1_000
    assert seen["crash"] > 1_000
    assert seen["reopen"] > 1_000
    assert seen["disprove"] > 500
    assert seen["seal"] > 500
    assert seen["COMPLETED"] > 7_000
