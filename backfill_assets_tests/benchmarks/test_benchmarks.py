"""Every benchmark on small work, so that none rots; nothing here is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.benchmarks.__main__ import figures_of
from backfill_assets_tests.benchmarks.bench import Bench
from backfill_assets_tests.benchmarks.measuring import Figure, faster, under, within
from backfill_assets_tests.benchmarks.report import COMPARISONS

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Workshop


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_runs_on_small_work_and_times_every_candidate(
    name: str, tmp_path: Path, workshop: Workshop
) -> None:
    figures = figures_of(name, Bench(tmp_path, workshop, results=tmp_path, small=True))

    assert figures
    for figure in figures:
        assert figure.product
        assert min(figure.product) > 0
        assert (figure.other is None) == (figure.against == "")
        assert figure.other is None or min(figure.other) > 0


def a_figure(product: list[float], other: list[float] | None = None) -> Figure:
    return Figure(what="x", unit="s", product=product, other=other)


def test_each_round_is_compared_with_itself() -> None:
    assert a_figure([1, 9, 2], [3, 9, 4]).times_faster == 2


def test_a_goal_says_whether_it_is_reached() -> None:
    figure = a_figure([2], [6])

    assert [faster(3).holds(figure), faster(3.1).holds(figure)] == [True, False]
    assert [within(0.34).holds(figure), within(0.33).holds(figure)] == [True, False]
    assert [under(2.1).holds(figure), under(2).holds(figure)] == [True, False]
