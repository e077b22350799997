"""Changed settings: only the difference is computed; what is no longer expected is unexpected.

A complete store is opened with another catalogue, its missing work is streamed and published as a
run does it, and every file that stood before stands unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Category, Unit, ValueType
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import ColumnType
from backfill_assets.core.plan import State, expected_partitions
from backfill_assets.resources.partition_stream import PartitionStream
from backfill_assets.resources.pruning import kinds, prune, prunings
from backfill_assets_tests.core.strategies import catalogues, instants
from backfill_assets_tests.resources.dagster_of_tests import Dagster
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    DAY_6,
    EXPECTED,
    NOW,
    SHOPS,
    Shops,
    a_catalogue,
    a_project,
    committed,
    fill,
)

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.resources.project import Project


def heal(project: Project) -> None:
    """Compute and commit what is missing as runs do: stream by stream, without Dagster."""
    catalogue = project.catalogues[0]
    missing = project.plan(catalogue).missing
    assignment = project.assignment(missing, replace=False)
    with project.store.attempt("healing") as attempt:
        for category in dict.fromkeys(query.category for query in catalogue.queries):
            stream = PartitionStream(
                assignment=assignment,
                queries=[query for query in catalogue.queries if query.category == category],
                source=project.data_sets[0].source,
                bounds=Bounds(),
            )
            for group in stream.groups():
                for partition, table in group:
                    attempt.stage(partition, table)
                attempt.publish()


def files(project: Project) -> dict[str, bytes]:
    """Return every data file below the store's root."""
    root: Path = project.store.root  # type: ignore[attr-defined]
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.parquet")
    }


def names(partitions: PartitionSet) -> set[str]:
    return {str(partition).removeprefix("shops/") for partition in partitions}


def by_day(partitions: PartitionSet) -> dict[int, int]:
    """Return how many partitions there are of each day of the month."""
    counts: dict[int, int] = {}
    for partition in partitions:
        counts[partition.day.day] = counts.get(partition.day.day, 0) + 1
    return dict(sorted(counts.items()))


EARLIER = date(2024, 2, 28)
UNITS = {"Paris": Unit("Paris"), "Lyon": Unit("Lyon"), "Nice": Unit("Nice", first_day=DAY_2)}


def units(*changed: Unit) -> list[Unit]:
    return list((UNITS | {unit.name: unit for unit in changed}).values())


def lateness(hours: int) -> ClosingPolicy:
    return ClosingPolicy(zone=ZoneInfo("Europe/Paris"), allowed_lateness=timedelta(hours=hours))


def first_days(hour: date | None, sold: date | None = None) -> dict[str, Any]:
    """Return the parts of the catalogue with other first days of a category and a value type."""
    return {
        "categories": [Category("article"), Category("hour", ColumnType.INT64, first_day=hour)],
        "value_types": [
            ValueType("sold", ColumnType.INT64, first_day=sold),
            ValueType("revenue"),
        ],
    }


# What changes, what is missing then by day of the month, and what is unexpected.
CHANGES: dict[str, tuple[dict[str, Any], dict[int, int], dict[int, int]]] = {
    "nothing": ({}, {}, {}),
    "an earlier first day": (
        {"first_day": EARLIER, "units": units(Unit("Lyon", first_day=DAY_1))},
        {28: 2, 29: 2},
        {},
    ),
    "a later first day": ({"first_day": DAY_4}, {}, {1: 4, 2: 6, 3: 12}),
    "an earlier last day": ({"last_day": DAY_3}, {}, {4: 12, 5: 12}),
    "a later last day": ({"last_day": date(2030, 1, 1)}, {}, {}),
    "no last day": ({"last_day": None}, {}, {}),
    "an earlier E of a category": (first_days(DAY_2), {2: 6}, {}),
    "no E of a category": (first_days(None), {1: 4, 2: 6}, {}),
    "a later E of a category": (first_days(DAY_5), {}, {3: 6, 4: 6}),
    "an E of a value type": (first_days(DAY_3, sold=DAY_4), {}, {1: 2, 2: 3, 3: 6}),
    "a shorter lateness": ({"closing": lateness(0)}, {}, {}),
    "a unit that opens earlier": ({"units": units(Unit("Nice"))}, {1: 2}, {}),
    "a unit that opens later": ({"units": units(Unit("Nice", DAY_4))}, {}, {2: 2, 3: 4}),
    "a unit that closes": (
        {"units": units(Unit("Lyon", last_day=DAY_3))},
        {},
        {4: 4, 5: 4},
    ),
    "a unit more": ({"units": units(Unit("Brest", DAY_4))}, {4: 4, 5: 4}, {}),
    "units in another order": ({"units": units()[::-1]}, {}, {}),
    "a retention of all days": ({"retention_days": 5}, {}, {}),
    "a retention of two days": ({"retention_days": 2}, {}, {1: 4, 2: 6, 3: 12}),
    "everything at once": (
        {
            "first_day": DAY_2,
            "last_day": DAY_4,
            "units": units(Unit("Paris", last_day=DAY_3), Unit("Brest")),
            **first_days(DAY_2),
        },
        {2: 2 + 8, 3: 4, 4: 4},
        {1: 4, 4: 4, 5: 12},
    ),
}


@pytest.mark.parametrize(("changes", "missing", "unexpected"), CHANGES.values(), ids=CHANGES)
def test_only_the_difference_is_computed_and_what_is_no_longer_expected_is_shown(
    root: Path, changes: dict[str, Any], missing: dict[int, int], unexpected: dict[int, int]
) -> None:
    fill(a_project(root))
    source = Shops()
    project = a_project(root, catalogue=a_catalogue(**changes), source=source)
    before, plan = files(project), project.plan(project.catalogues[0])
    assert (by_day(plan.missing), by_day(plan.unexpected)) == (missing, unexpected)

    heal(project)
    assert {day.day for day in source.days_asked} == missing.keys()
    assert files(project).items() >= before.items()
    assert len(files(project)) == len(before) + sum(missing.values())
    healed = project.plan(project.catalogues[0])
    assert not healed.missing
    assert by_day(healed.unexpected) == unexpected

    # Back again: all is there as it was, and what the change had added is unexpected.
    back = a_project(root, source=source)
    assert not back.plan(SHOPS).missing
    assert names(back.plan(SHOPS).unexpected) == {
        name for name in names(plan.missing) if "Brest" not in name
    }


@pytest.mark.parametrize(("changes", "missing", "unexpected"), CHANGES.values(), ids=CHANGES)
def test_pruning_after_a_change_removes_what_is_unexpected_and_going_back_computes_it_again(
    root: Path, changes: dict[str, Any], missing: dict[int, int], unexpected: dict[int, int]
) -> None:
    fill(a_project(root))
    project = a_project(root, catalogue=a_catalogue(**changes))
    heal(project)
    plan = project.plan(project.catalogues[0])
    (found,) = prunings(project, kinds(superseded=False, unexpected=False))
    assert sum(not leftover.is_folder for leftover in found.leftovers) == len(plan.unexpected)
    prune(project, found)
    pruned = project.plan(project.catalogues[0])
    assert pruned.committed == plan.committed == plan.expected
    assert not pruned.unexpected

    source = Shops()
    back = a_project(root, source=source)
    assert by_day(back.plan(SHOPS).missing) == unexpected
    heal(back)
    assert len(committed(back)) >= EXPECTED
    assert not back.plan(SHOPS).missing
    assert sum(missing.values()) == len(plan.committed) - (EXPECTED - sum(unexpected.values()))


def test_a_longer_lateness_opens_days_again_whose_files_stand_and_are_never_made_again(
    root: Path,
) -> None:
    fill(a_project(root))
    source = Shops()
    project = a_project(root, catalogue=a_catalogue(closing=lateness(25)), source=source)
    plan = project.plan(project.catalogues[0])
    newest = plan.catalogue.partition("article/sold", DAY_5, "Paris")
    assert plan.explain(newest) == (
        State.OPEN,
        "its day closes at 2024-03-07T01:00:00+01:00",
    )
    assert (by_day(plan.missing), by_day(plan.unexpected)) == ({}, {})
    (found,) = prunings(project, kinds(superseded=False, unexpected=False))
    assert found.leftovers == ()
    later = a_project(
        root,
        catalogue=a_catalogue(closing=lateness(25)),
        source=source,
        now=NOW + timedelta(days=1),
    )
    heal(later)
    assert source.questions == []
    assert newest in later.plan(later.catalogues[0]).committed


def test_a_shorter_lateness_closes_a_day_sooner_and_that_day_alone_is_computed(root: Path) -> None:
    an_hour_ago = NOW - timedelta(hours=1)
    fill(a_project(root, now=an_hour_ago))
    source = Shops()
    project = a_project(
        root, catalogue=a_catalogue(closing=lateness(0)), source=source, now=an_hour_ago
    )
    assert by_day(project.plan(project.catalogues[0]).missing) == {5: 12}
    heal(project)
    assert source.days_asked == {DAY_5}


def test_under_retention_each_day_that_closes_is_computed_and_pushes_one_out_that_is_never_made(
    root: Path,
) -> None:
    catalogue, source = a_catalogue(retention_days=2), Shops()
    for days in range(4):
        project = a_project(
            root, catalogue=catalogue, source=source, now=NOW + timedelta(days=days)
        )
        heal(project)
        plan = project.plan(catalogue)
        assert [day.day for day in plan.expected.days()] == [5 + days, 4 + days]
        assert [day.day for day in plan.unexpected.days()] == list(range(3 + days, 3, -1))
    (found,) = prunings(project, kinds(superseded=False, unexpected=True))
    prune(project, found)
    assert not project.plan(catalogue).unexpected
    assert committed(project) == plan.expected
    assert DAY_3 not in source.days_asked


def test_a_deleted_file_is_made_again_within_retention_and_never_beyond_it(root: Path) -> None:
    fill(a_project(root))
    source = Shops()
    project = a_project(root, catalogue=a_catalogue(retention_days=2), source=source)
    for day in (DAY_1, DAY_4):
        partition = SHOPS.partition("article/sold", day, "Paris")
        Path(project.store.location(partition)).unlink()
    assert names(project.plan(project.catalogues[0]).missing) == {"article/sold/2024-03-04/Paris"}
    heal(project)
    assert source.questions == [("article", (DAY_4,))]


@given(st.data())
def test_between_any_two_catalogues_missing_and_unexpected_are_the_two_differences(
    data: st.DataObject,
) -> None:
    """The states alone, without files: whatever changes, in either direction."""
    before = data.draw(catalogues())
    after = data.draw(
        st.builds(
            replace,
            st.just(before),
            first_day=st.integers(-2, 2).map(lambda days: before.first_day + days * DAY),
            last_day=st.none() | st.integers(4, 9).map(lambda d: before.first_day + d * DAY),
            retention_days=st.none() | st.integers(1, 6),
            units=st.lists(
                st.builds(
                    Unit,
                    st.sampled_from("VWXYZ"),
                    first_day=st.none()
                    | st.integers(0, 3).map(lambda d: before.first_day + d * DAY),
                ),
                min_size=1,
                max_size=4,
                unique_by=lambda unit: unit.name,
            ),
        )
    )
    latest = after.latest_closed_day(data.draw(instants(before)))
    stood = {str(p) for p in expected_partitions(before, latest)}
    wanted = {str(p) for p in expected_partitions(after, latest)}
    present = PartitionSet.of(after, _known(after, stood))
    expected = expected_partitions(after, latest)
    assert {str(p) for p in expected - present} == wanted - stood
    assert {str(p) for p in present - expected} == {
        name for name in stood - wanted if name.rpartition("/")[2] in after.unit_bits
    }


DAY = timedelta(days=1)


def _known(catalogue: Catalogue, texts: set[str]) -> list[Any]:
    """Return the partitions that a scan would find: those whose unit the catalogue has."""
    return [catalogue.parse(t) for t in texts if t.rpartition("/")[2] in catalogue.unit_bits]


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_through_the_sensor_a_change_launches_the_difference_alone_and_comes_to_rest(
    root: Path,
) -> None:
    changed = a_catalogue(
        first_day=DAY_2,
        retention_days=4,
        units=units(Unit("Brest", first_day=DAY_4)),
        **first_days(DAY_2),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        before = Dagster(a_project(root), instance)
        before.complete()
        source = Shops()
        after = Dagster(a_project(root, catalogue=changed, source=source), instance)
        after.cursor = before.cursor
        plan = after.project.plan(changed)
        stood = files(after.project)
        assert by_day(plan.missing) == {2: 6, 4: 4, 5: 4}
        assert by_day(plan.unexpected) == {1: 4}

        after.complete()
        assert source.days_asked == {DAY_2, DAY_4, DAY_5}
        assert files(after.project).items() >= stood.items()
        assert after.settled() == (
            "Nothing is missing: 56 of 56 expected partitions are committed, up to 2024-03-05."
        )

        # A day closes: it is computed, and 2 March is pushed out and never asked for again.
        source.questions.clear()
        tomorrow = Dagster(
            a_project(root, catalogue=changed, source=source, now=NOW + timedelta(days=1)), instance
        )
        tomorrow.cursor = after.cursor
        for path in (root / "shops/article/sold/v1/2024-03-02").iterdir():
            path.unlink()
        tomorrow.complete()
        assert source.days_asked == {DAY_6}
        assert by_day(tomorrow.project.plan(changed).unexpected) == {1: 4, 2: 9}
        assert not tomorrow.project.plan(changed).missing
