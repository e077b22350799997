"""What Dagster is shown of a project: its grids, its assets, its jobs and its sensor."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from backfill_assets.core.catalogue import Unit
from backfill_assets.core.closing import ClosingPolicy
from backfill_assets.defs.bindings import project_of
from backfill_assets.defs.location import build_definitions
from backfill_assets.defs.partitions import LargeGridWarning, partitions_definition
from backfill_assets.resources.run_requests import asset_key
from backfill_assets.resources.settings import Settings
from backfill_assets_tests.resources.small_project import SHOPS, SOLD, a_catalogue, a_project

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


def test_a_grid_is_the_days_from_its_first_to_the_catalogues_last_times_all_units() -> None:
    whole, later = (partitions_definition(SHOPS, grid) for grid in SHOPS.grids)
    keys = [str(key) for key in whole.get_partition_keys()]
    assert len(keys) == 30
    assert {"2024-03-01|Paris", "2024-03-10|Nice"} <= set(keys)
    assert "2024-03-11|Paris" not in keys
    assert len(later.get_partition_keys()) == 24
    assert "2024-03-02|Paris" not in later.get_partition_keys()


def test_more_cells_than_the_pages_are_made_for_are_warned_of_and_fewer_are_not() -> None:
    units = [Unit(f"U{number:02}") for number in range(60)]
    large = a_catalogue(units=units, last_day=date(2029, 8, 21))  # 2,000 days

    with pytest.warns(LargeGridWarning, match=r"has 120,000 partitions"):
        partitions_definition(large, large.grids[0])

    small = a_catalogue(units=units, last_day=date(2025, 8, 21))
    partitions_definition(small, small.grids[0])  # a warning would be an error here


def test_units_keep_the_order_of_the_catalogue() -> None:
    units = partitions_definition(SHOPS, SHOPS.grids[0]).get_partitions_def_for_dimension("unit")
    assert list(units.get_partition_keys()) == ["Paris", "Lyon", "Nice"]


def test_a_day_that_never_was_is_a_key_of_dagster_and_nothing_that_is_expected() -> None:
    apia = a_catalogue(
        closing=ClosingPolicy(zone=ZoneInfo("Pacific/Apia")),
        first_day=date(2011, 12, 29),
        last_day=date(2011, 12, 31),
        units=SHOPS.units[:1],
        categories=SHOPS.categories[:1],
    )
    keys = partitions_definition(apia, apia.grids[0]).get_partition_keys()
    assert "2011-12-30|Paris" in keys
    lost = apia.partition("article/sold", date(2011, 12, 30), "Paris")
    assert apia.why_not_expected(lost) == "2011-12-30 never was in Pacific/Apia"


def test_there_is_an_asset_for_each_query_and_a_job_for_each_grid(root: Path) -> None:
    repository = build_definitions(a_project(root)).get_repository_def()
    assert {asset_key(query) for query in SHOPS.queries} <= set(repository.assets_defs_by_key)
    assets = repository.assets_defs_by_key[asset_key(SOLD)]
    assert assets.can_subset
    assert assets.backfill_policy == dg.BackfillPolicy.single_run()
    assert assets.code_versions_by_key[asset_key(SOLD)] == "1"
    for name, count in (("shops_partitions", 30), ("shops_partitions_from_2024_03_03", 24)):
        definition = repository.get_job(name).partitions_def
        assert definition is not None
        assert len(definition.get_partition_keys()) == count


def test_a_job_says_what_it_makes_and_from_which_day_on(root: Path) -> None:
    repository = build_definitions(a_project(root)).get_repository_def()
    assert {
        name: repository.get_job(name).description
        for name in ("shops_partitions", "shops_partitions_from_2024_03_03")
    } == {
        "shops_partitions": "Commits missing partitions of shops by article, from 2024-03-01 on, "
        "newest day first.",
        "shops_partitions_from_2024_03_03": "Commits missing partitions of shops by hour, from "
        "2024-03-03 on, newest day first.",
    }


def test_the_sensor_runs_from_the_start_and_targets_every_grid(root: Path) -> None:
    sensor = build_definitions(a_project(root)).resolve_sensor_def("missing_partitions_sensor")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 4
    assert {"shops_partitions", "shops_partitions_from_2024_03_03"} <= {
        target.job_name for target in sensor.targets
    }


def test_a_project_without_flights_has_nothing_of_theirs(root: Path) -> None:
    repository = build_definitions(a_project(root)).get_repository_def()
    assert not [key for key in repository.assets_defs_by_key if key.path[0] == "flights"]


def test_defining_the_flights_opens_no_store_and_asks_no_database(tmp_path: Path) -> None:
    settings = Settings.load(
        {
            "BACKFILL_ENV_FILE": "",
            "BACKFILL_HOME": str(tmp_path / "home"),
            "BACKFILL_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/nothing",
            "BACKFILL_TICK_SECONDS": "5",
        }
    )
    repository = build_definitions(project_of(settings)).get_repository_def()
    assert dg.AssetKey(["flights", "daily_report"]) in repository.assets_defs_by_key
    assert len([k for k in repository.assets_defs_by_key if len(k.path) == 3]) == 20
    for name in ("flights_missing_partitions_sensor", "model_training_sensor"):
        assert repository.get_sensor_def(name).minimum_interval_seconds == 5
    assert not (tmp_path / "home").exists()
