"""The asset check fails where Dagster's grid and the files disagree, and names what disagrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.core.partitions import Partition
from backfill_assets.defs.checks import CHECK_NAME
from backfill_assets.resources.run_requests import coverage_job_name
from backfill_assets_tests.resources.dagster_of_tests import Dagster, a_key, a_range
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_3,
    DAY_4,
    SHOPS,
    SOLD,
    Shops,
    a_project,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LYON = Partition(SOLD, DAY_3, "Lyon")
AGREES = dict.fromkeys(("article/sold", "article/revenue", "hour/sold", "hour/revenue"), "agrees")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def dagster(root: Path, instance: dg.DagsterInstance) -> Dagster:
    """Return the shops, complete."""
    dagster = Dagster(a_project(root, source=Shops()), instance)
    dagster.complete()
    return dagster


def look(dagster: Dagster) -> dict[str, dg.AssetCheckEvaluation]:
    """Run the checks of all assets; return each one's answer by query."""
    job = dagster.repository.get_job(coverage_job_name(SHOPS))
    result = job.execute_in_process(instance=dagster.instance)
    found = (c for c in result.get_asset_check_evaluations() if c.check_name == CHECK_NAME)
    return {"/".join(each.asset_key.path[1:]): each for each in found}


def told(dagster: Dagster) -> dict[str, str | None]:
    """Run the checks; return what each says."""
    found = look(dagster)
    assert {name for name, each in found.items() if each.passed} == {
        name for name, each in found.items() if each.description == "agrees"
    }
    return {name: each.description for name, each in found.items()}


def named(dagster: Dagster, kind: str) -> str:
    """Run the checks; return which partitions of sold articles one names."""
    return str(look(dagster)["article/sold"].metadata[kind].value)


def test_where_every_file_stands_all_checks_pass(dagster: Dagster) -> None:
    assert told(dagster) == AGREES


def test_a_deleted_file_fails_the_check_of_its_asset_alone_until_it_is_made_again(
    dagster: Dagster,
) -> None:
    Path(dagster.project.store.location(LYON)).unlink()

    assert told(dagster) == AGREES | {"article/sold": "1 shown without a file"}
    assert named(dagster, "shown without a file") == "* 2024-03-03|Lyon"

    dagster.complete()
    assert told(dagster) == AGREES


def test_a_held_partition_fails_the_check_until_it_is_released_and_made(dagster: Dagster) -> None:
    dagster.project.store.hold([LYON], "why")

    assert told(dagster) == AGREES | {"article/sold": "1 held"}
    assert named(dagster, "held") == "* 2024-03-03|Lyon"

    dagster.project.store.release([LYON])
    dagster.complete()
    assert told(dagster) == AGREES


def test_a_damaged_file_fails_the_check_and_says_what_is_wrong(dagster: Dagster) -> None:
    path = Path(dagster.project.store.location(LYON))
    path.write_bytes(path.read_bytes()[:-20])

    assert told(dagster) == AGREES | {"article/sold": "1 with an unsound file"}
    assert f"* 2024-03-03|Lyon: {path} cannot be read" in named(dagster, "with an unsound file")


def test_each_kind_of_fault_is_counted_by_itself(dagster: Dagster) -> None:
    for partition in dagster.project.store.scan(SHOPS).committed.only([SOLD]):
        Path(dagster.project.store.location(partition)).unlink()

    dagster.project.store.hold([LYON], "why")
    assert told(dagster)["article/sold"] == "13 shown without a file; 1 held"


def test_a_day_that_was_never_made_fails_no_check_of_another(
    root: Path, instance: dg.DagsterInstance
) -> None:
    dagster = Dagster(a_project(root, source=Shops(failing={DAY_4})), instance)
    dagster.ask([SOLD], a_range("2024-03-03|Paris", "2024-03-04|Nice"))

    assert dagster.materialized(SOLD) == {
        f"article/sold/2024-03-03|{unit}" for unit in ("Paris", "Lyon", "Nice")
    }
    assert told(dagster) == AGREES


def test_what_is_not_expected_and_was_reported_for_a_backfills_sake_is_no_fault(
    dagster: Dagster,
) -> None:
    dagster.ask([SOLD], a_key(f"{DAY_1}|Nice"))

    assert f"article/sold/{DAY_1}|Nice" in dagster.materialized(SOLD)
    assert told(dagster) == AGREES
