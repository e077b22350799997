"""What `up` prints where its output is no terminal: news of each catalogue, and nothing twice."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import expected_partitions, make_plan
from backfill_assets.resources.progress_view import ProgressView
from backfill_assets_tests.resources.small_project import NOW, SHOPS, a_catalogue

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.plan import Plan

CAFES = a_catalogue(name="cafes")


def plan(catalogue: Catalogue, *, complete: bool) -> Plan:
    nothing = PartitionSet.empty(catalogue)
    every = expected_partitions(catalogue, catalogue.latest_closed_day(NOW))
    present = every if complete else nothing
    return make_plan(catalogue, present=present, held=nothing, in_flight=nothing, now=NOW)


def lines(looks: list[list[Plan]]) -> list[str]:
    out = io.StringIO()
    view = ProgressView(Console(file=out, width=200))
    for plans in looks:
        view.show(plans)
    return out.getvalue().splitlines()


def test_what_stands_complete_is_said_once_by_each_catalogue() -> None:
    look = [plan(SHOPS, complete=True), plan(CAFES, complete=True)]
    assert [line.split(":")[0] for line in lines([look] * 5)] == ["shops", "cafes"]


def test_each_catalogue_is_told_of_while_both_fill() -> None:
    look = [plan(SHOPS, complete=False), plan(CAFES, complete=False)]
    assert lines([look] * 2) == ["shops: 0 of 46", "cafes: 0 of 46"]


def test_what_becomes_complete_is_said_at_once() -> None:
    begun, done = ([plan(SHOPS, complete=c)] for c in (False, True))
    assert lines([begun, done])[1].endswith("complete")
