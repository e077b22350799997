"""Pruning a project: kinds are chosen, old versions are warned about, and a run may go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.leftovers import LeftoverKind
from backfill_assets.resources import pruning
from backfill_assets.resources.pruning import kinds, prune, prunings
from backfill_assets_tests.resources.small_project import (
    DAY_5,
    SHOPS,
    a_catalogue,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.resources.project import Project

BOTH = kinds(superseded=False, unexpected=False)


@pytest.fixture
def changed(root: Path) -> Project:
    """A store with an old version, days before the first, and a new version's first day."""
    fill(a_project(root))
    project = a_project(root, catalogue=a_catalogue(versions={"article/sold": 2}, retention_days=3))
    fill(project, days=[DAY_5])
    return project


def test_where_no_kind_is_chosen_all_are() -> None:
    assert frozenset(LeftoverKind) == BOTH
    assert kinds(superseded=True, unexpected=True) == BOTH
    assert kinds(superseded=True, unexpected=False) == {LeftoverKind.SUPERSEDED}
    assert kinds(superseded=False, unexpected=True) == BOTH - {LeftoverKind.SUPERSEDED}


def test_old_versions_go_alone_and_what_depends_on_them_is_said_first(changed: Project) -> None:
    (found,) = prunings(changed, kinds(superseded=True, unexpected=False))
    told = found.facts()
    assert told["total"] == told["total"] | {"files": 14, "folders": 6}
    assert told["total"]["bytes"] > 14 * 500
    assert told["warnings"] == [
        "shops/article/sold: 6 partitions of version 2 are missing still; until they are made, an "
        "older version is all that there is of them"
    ]
    before = committed(changed)
    assert prune(changed, found) == 20
    assert committed(changed) == before
    (left,) = prunings(changed, BOTH)
    assert {leftover.kind for leftover in left.leftovers} == {LeftoverKind.NOT_EXPECTED}
    assert left.facts()["warnings"] == []


def test_the_unexpected_goes_alone_and_the_old_version_stays(changed: Project) -> None:
    (found,) = prunings(changed, kinds(superseded=False, unexpected=True))
    prune(changed, found)
    assert not changed.plan(changed.catalogues[0]).unexpected
    (left,) = prunings(changed, BOTH)
    assert {leftover.kind for leftover in left.leftovers} == {LeftoverKind.SUPERSEDED}


def test_a_hold_of_the_old_version_is_named_as_kept(changed: Project, root: Path) -> None:
    a_project(root).store.hold([SHOPS.partition("article/sold", DAY_5, "Paris")], "wrong")
    (found,) = prunings(changed, BOTH)
    prune(changed, found)
    (left,) = prunings(changed, BOTH)
    assert left.facts()["kept"] == ["shops/article/sold/v1/2024-03-05/Paris.hold"]
    assert left.leftovers == ()


def test_progress_is_told_in_slices_that_add_up(
    changed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_SLICE", 8)
    (found,) = prunings(changed, BOTH)
    told: list[int] = []
    count = prune(changed, found, told.append)
    assert count == sum(told) == len(found.leftovers)
    assert max(told) == 8


def test_what_a_run_still_publishes_for_an_old_version_is_left_for_the_next_pruning(
    changed: Project, root: Path
) -> None:
    (found,) = prunings(changed, BOTH)
    assert prune(changed, found) == len(found.leftovers)
    fill(a_project(root), days=[DAY_5])
    (left,) = prunings(changed, BOTH)
    assert {leftover.kind for leftover in left.leftovers} == {LeftoverKind.SUPERSEDED}
    prune(changed, left)
    assert prunings(changed, BOTH)[0].leftovers == ()
