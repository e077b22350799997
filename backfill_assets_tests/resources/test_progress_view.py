"""What `up` says while it fills, where its output is no terminal: each thing once."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets.resources.progress_view import ProgressView

from .small_project import EXPECTED, NOW, SHOPS, a_catalogue

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.plan import Plan

KIOSKS = a_catalogue(name="kiosks")


def a_plan(catalogue: Catalogue, committed: int) -> Plan:
    """Return the plan of a store that holds the newest so many partitions."""
    nothing = PartitionSet.empty(catalogue)
    whole = make_plan(catalogue, present=nothing, held=nothing, in_flight=nothing, now=NOW)
    present = PartitionSet.of(catalogue, list(whole.missing)[:committed])
    return make_plan(catalogue, present=present, held=nothing, in_flight=nothing, now=NOW)


class Screen:
    """A view on a file, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self._file = StringIO()
        self._view = ProgressView(Console(file=self._file, width=200), lambda: self.now)

    def show(self, *plans: Plan, after: float = 0.0) -> list[str]:
        """Return the lines that a look prints, so many seconds after the last one."""
        self.now += after
        begun = self._file.tell()
        self._view.show(plans)
        return self._file.getvalue()[begun:].splitlines()


def test_each_catalogue_is_told_once_until_it_has_news() -> None:
    screen = Screen()
    shops, kiosks = a_plan(SHOPS, EXPECTED), a_plan(KIOSKS, 0)
    done = f"shops: {EXPECTED} of {EXPECTED}  2024-03-01 … 2024-03-05  complete"

    assert screen.show(shops, kiosks) == [done, f"kiosks: 0 of {EXPECTED}"]
    assert screen.show(shops, kiosks, after=60) == []
    told = [f"kiosks: 10 of {EXPECTED}  2024-03-05 … 2024-03-05  1.0/s, 36 s left"]
    assert screen.show(shops, a_plan(KIOSKS, 10), after=10) == told


def test_lines_of_a_catalogue_that_fills_come_now_and_then_and_its_end_at_once() -> None:
    screen = Screen()
    assert len(screen.show(a_plan(SHOPS, 0))) == 1
    assert screen.show(a_plan(SHOPS, 5), after=2) == []
    assert len(screen.show(a_plan(SHOPS, 20), after=8)) == 1
    (end,) = screen.show(a_plan(SHOPS, EXPECTED), after=1)
    assert end.endswith("complete")
