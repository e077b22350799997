"""Tables in a terminal, however narrow it is."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from backfill_assets.core.coverage import Coverage
from backfill_assets.resources.coverage_report import facts
from backfill_assets.resources.terminal import print_status

from .small_project import a_project, fill

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.resources.project import Project


def status_of(project: Project, width: int) -> str:
    out = Console(file=StringIO(), width=width)
    print_status(out, facts(Coverage(project.plan(project.catalogues[0]))))
    return out.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_number_of_a_status_is_cut_short(tmp_path: Path, width: int) -> None:
    project = a_project(tmp_path / "store")
    fill(project)
    rows = [line.split() for line in status_of(project, width).splitlines()]
    # What there is none of has no column.
    assert ["query", "or", "unit", "expected", "committed", "missing", "complete"] in rows
    assert ["article/sold", "14", "14", "0", "100.00%"] in rows
    assert ["all", "46", "46", "0", "100.00%"] in rows


def test_what_there_seldom_is_has_a_column_where_there_is_some(tmp_path: Path) -> None:
    project = a_project(tmp_path / "store")
    fill(project)
    committed = project.plan(project.catalogues[0]).committed
    project.store.hold([next(iter(committed))], "wrong")
    rows = [line.split() for line in status_of(project, 20).splitlines()]
    assert ["query", "or", "unit", "expected", "committed", "missing", "held", "complete"] in rows
    assert ["all", "46", "45", "0", "1", "97.82%"] in rows
