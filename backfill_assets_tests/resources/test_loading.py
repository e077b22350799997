"""A reader gets its partitions in the shape it asks for, or an error that says what is missing."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from backfill_assets.core.errors import MissingPartitionError
from backfill_assets.defs.partitions import daily_partitions, partitions_definition
from backfill_assets.resources.partition_io_manager import partition_io_manager
from backfill_assets.resources.run_requests import asset_key
from backfill_assets_tests.resources.dagster_of_tests import a_key, failures
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    SHOPS,
    SOLD,
    Shops,
    a_catalogue,
    a_project,
    fill,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

GRID = SHOPS.grids[0]
FRAMES = dict[str, pd.DataFrame]


def day_before() -> dg.MultiPartitionMapping:
    """Map each partition to the one of the day before: the first day has nothing upstream."""
    days = dg.TimeWindowPartitionMapping(
        start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
    )
    return dg.MultiPartitionMapping(
        {
            "date": dg.DimensionPartitionMapping("date", days),
            "unit": dg.DimensionPartitionMapping("unit", dg.IdentityPartitionMapping()),
        }
    )


@pytest.fixture
def project(root: Path) -> Project:
    """A project in which the first two days are committed, and an empty partition on the second."""
    project = a_project(root)
    table = Shops().read("article", ["sold"], [DAY_1, DAY_2], ["Paris", "Lyon", "Nice"])
    with project.store.attempt("a-run") as attempt:
        for day in (DAY_1, DAY_2):
            for unit in ("Paris", "Lyon") if day == DAY_1 else ("Paris", "Lyon", "Nice"):
                rows = [
                    {"article": row["article"], "value": row["sold"]}
                    for row in table.to_pylist()
                    if (row["date"], row["unit"]) == (day, unit) and unit != "Nice"
                ]
                schema = pa.schema([("article", pa.string()), ("value", pa.int64())])
                partition = SHOPS.partition("article/sold", day, unit)
                attempt.stage(partition, pa.Table.from_pylist(rows, schema=schema))
        attempt.publish()
    return project


def load(
    project: Project,
    kind: Any,
    tags: Mapping[str, str],
    *,
    partitions: dg.PartitionsDefinition[Any] | None,
    mapping: dg.PartitionMapping | None = None,
    grid: dg.PartitionsDefinition[Any] | None = None,
) -> Any:
    """Return what an asset downstream of ``shops/article/sold`` is given, or what its run said."""
    given: list[Any] = []

    def reader(sold: Any) -> None:
        given.append(sold)

    reader.__annotations__["sold"] = kind
    asset = dg.asset(
        reader,  # type: ignore[call-overload]
        ins={"sold": dg.AssetIn(asset_key(SOLD), partition_mapping=mapping)},
        partitions_def=partitions,
    )
    upstream = dg.AssetSpec(
        asset_key(SOLD),
        partitions_def=grid or partitions_definition(SHOPS, GRID),
        metadata={"dagster/io_manager_key": "partitions"},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [asset, upstream],
            resources={"partitions": partition_io_manager(project)},
            instance=instance,
            tags=dict(tags),
            raise_on_error=False,
        )
    return given[0] if result.success else failures(result)[0]


def of_a_day(project: Project, kind: Any, day: str) -> Any:
    return load(project, kind, {"dagster/partition": day}, partitions=daily_partitions(SHOPS, GRID))


def of_a_cell(project: Project, kind: Any, key: str, mapping: Any = None) -> Any:
    return load(
        project, kind, a_key(key), partitions=partitions_definition(SHOPS, GRID), mapping=mapping
    )


def test_a_reader_of_a_day_gets_one_frame_of_all_its_units_in_catalogue_order(
    project: Project,
) -> None:
    found = of_a_day(project, pd.DataFrame, "2024-03-02")
    assert found.to_dict("list") == {
        "date": [DAY_2] * 4,
        "unit": ["Paris", "Paris", "Lyon", "Lyon"],
        "article": ["A0", "A1", "A0", "A1"],
        "value": [205, 206, 204, 205],
    }


def test_a_reader_of_a_month_gets_all_days_and_units_of_it_or_is_told_what_is_missing(
    root: Path,
) -> None:
    catalogue = a_catalogue(last_day=date(2024, 3, 31))
    project = a_project(root, catalogue=catalogue, now=datetime(2024, 4, 2, tzinfo=UTC))
    fill(project)
    grid = partitions_definition(catalogue, catalogue.grids[0])
    months = dg.MonthlyPartitionsDefinition(
        "2024-03-01", timezone="Europe/Paris", end_date="2024-04-01"
    )
    march = {"dagster/partition": "2024-03-01"}

    frame = load(project, pd.DataFrame, march, partitions=months, grid=grid)

    assert len(frame) == 2 * (31 * 3 - 1)  # two articles, 31 days, Nice from the second day on
    assert list(frame["date"].unique()) == [date(2024, 3, day) for day in range(1, 32)]

    Path(project.store.location(SHOPS.partition("article/sold", DAY_2, "Lyon"))).unlink()
    told = load(project, pd.DataFrame, march, partitions=months, grid=grid)
    assert "partition 2024-03-02|Lyon of shops/article/sold is not committed" in told


def test_a_reader_that_wants_a_frame_for_each_key_gets_them(project: Project) -> None:
    found = of_a_day(project, FRAMES, "2024-03-02")
    assert {key: frame["value"].to_list() for key, frame in found.items()} == {
        "2024-03-02|Paris": [205, 206],
        "2024-03-02|Lyon": [204, 205],
        "2024-03-02|Nice": [],
    }


def test_a_single_key_has_the_same_shape_as_many(project: Project) -> None:
    found = of_a_cell(project, FRAMES, "2024-03-02|Lyon")
    assert {key: frame["value"].to_list() for key, frame in found.items()} == {
        "2024-03-02|Lyon": [204, 205]
    }
    frame = of_a_cell(project, pd.DataFrame, "2024-03-02|Lyon")
    assert frame["value"].to_list() == [204, 205]


def test_no_key_at_all_has_the_same_shape_as_many(project: Project) -> None:
    assert of_a_cell(project, FRAMES, "2024-03-01|Paris", day_before()) == {}
    frame = of_a_cell(project, pd.DataFrame, "2024-03-01|Paris", day_before())
    assert list(frame.columns) == ["date", "unit", "article", "value"]
    assert len(frame) == 0
    before = of_a_cell(project, pd.DataFrame, "2024-03-02|Paris", day_before())
    assert before["date"].to_list() == [DAY_1, DAY_1]


def test_an_arrow_table_is_given_where_one_is_asked_for(project: Project) -> None:
    found = of_a_cell(project, pa.Table, "2024-03-02|Lyon")
    assert found.to_pylist()[0] == {"date": DAY_2, "unit": "Lyon", "article": "A0", "value": 204}


def test_a_reader_of_everything_gets_history_oldest_first(root: Path) -> None:
    project = a_project(root)
    table = pa.table({"article": ["A0"], "value": pa.array([1], pa.int64())})
    days = [date(2024, 3, day) for day in range(1, 11)]
    with project.store.attempt("a-run") as attempt:
        for day in reversed(days):
            for unit in ("Paris", "Lyon", "Nice")[: 2 if day == DAY_1 else 3]:
                attempt.stage(SHOPS.partition("article/sold", day, unit), table)
        attempt.publish()
    found = load(project, FRAMES, {}, partitions=None)
    assert len(found) == 29
    assert list(found)[:4] == [
        "2024-03-01|Paris",
        "2024-03-01|Lyon",
        "2024-03-02|Paris",
        "2024-03-02|Lyon",
    ]


def test_an_empty_partition_is_an_empty_frame_with_its_types(project: Project) -> None:
    found = of_a_cell(project, pd.DataFrame, "2024-03-02|Nice")
    assert list(found.columns) == ["date", "unit", "article", "value"]
    assert str(found.dtypes["value"]) == "int64"
    assert len(found) == 0


def test_an_absent_partition_is_an_error_with_asset_key_path_and_remedy(project: Project) -> None:
    place = project.store.location(SHOPS.partition("article/sold", date(2024, 3, 3), "Paris"))
    for kind in (pd.DataFrame, FRAMES):
        message = of_a_cell(project, kind, "2024-03-03|Paris")
        assert (
            "MissingPartitionError: partition 2024-03-03|Paris of shops/article/sold is not "
            f"committed: no file at {place}. `backfill-assets plan --explain "
            "'shops/article/sold/2024-03-03/Paris'` says why" in message
        )


def test_one_absent_partition_among_many_is_an_error_and_never_left_out(project: Project) -> None:
    place = project.store.location(SHOPS.partition("article/sold", DAY_2, "Lyon"))
    (project.store.root / place).unlink()
    message = of_a_day(project, pd.DataFrame, "2024-03-02")
    assert "partition 2024-03-02|Lyon of shops/article/sold is not committed" in message


def test_a_unit_that_was_not_open_yet_is_left_out_of_a_day(project: Project) -> None:
    found = of_a_day(project, FRAMES, "2024-03-01")
    assert list(found) == ["2024-03-01|Paris", "2024-03-01|Lyon"]


def test_asked_for_alone_a_partition_that_is_not_expected_is_an_error(project: Project) -> None:
    message = of_a_cell(project, pd.DataFrame, "2024-03-01|Nice")
    assert "partition 2024-03-01|Nice of shops/article/sold is not committed" in message


def test_a_held_partition_is_an_error_although_its_file_may_stand(project: Project) -> None:
    partition = SHOPS.partition("article/sold", DAY_2, "Paris")
    project.store.hold([partition], "counted twice")
    with pytest.raises(MissingPartitionError, match="is held"):
        project.store.read(partition)
    assert "partition 2024-03-02|Paris of shops/article/sold is held" in of_a_cell(
        project, pd.DataFrame, "2024-03-02|Paris"
    )
