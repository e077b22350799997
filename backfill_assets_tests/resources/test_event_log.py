"""Dagster shows what was committed, once, and whose work it was."""

# ruff: noqa: TID251 - asks Dagster's own code what the UI shows, and runs its daemon's backfills

import importlib.util
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from dagster._core.test_utils import (
    create_test_daemon_workspace_context,
    wait_for_runs_to_finish,
)
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon import get_default_daemon_logger
from dagster._daemon.backfill import execute_backfill_iteration

from backfill_assets.resources import event_log
from backfill_assets.resources.event_log import (
    MAX_EVENTS_PER_BATCH,
    event_log_mark,
    materialized_partitions,
    report_outside_runs,
)
from backfill_assets.resources.instance_storage import close_connections
from backfill_assets_tests.resources.instances import URL_VARIABLE, open_instance
from backfill_assets_tests.resources.reporting_assets import (
    DEPARTURES,
    PARTITIONS,
    ReportingIOManager,
    carrier_asset,
    group,
)

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

TWO_DAYS = {
    "dagster/asset_partition_range_start": "2013-08-01|EWR",
    "dagster/asset_partition_range_end": "2013-08-02|JFK",
}
KEYS_OF_TWO_DAYS = ["2013-08-02|EWR", "2013-08-02|JFK", "2013-08-01|EWR", "2013-08-01|JFK"]


def run_two_days(
    instance: dg.DagsterInstance, io_manager: dg.IOManager, *, deferring: bool = True
) -> str:
    result = dg.materialize(
        [carrier_asset(deferring=deferring)],
        instance=instance,
        resources={"reporting": io_manager},
        tags=TWO_DAYS,
    )
    return result.run_id


def materializations(instance: dg.DagsterInstance) -> list[dg.EventLogEntry]:
    records = instance.fetch_materializations(DEPARTURES, limit=100, ascending=True).records
    return [record.event_log_entry for record in records]


def content(entry: dg.EventLogEntry) -> tuple[Any, ...]:
    event = entry.asset_materialization
    assert event is not None
    return event.partition, dict(event.tags or {}), dict(event.metadata)


def test_a_run_reports_one_event_per_partition_in_the_order_of_its_commits(
    instance: dg.DagsterInstance,
) -> None:
    run_id = run_two_days(instance, ReportingIOManager())
    entries = materializations(instance)
    assert [content(entry)[0] for entry in entries] == KEYS_OF_TWO_DAYS
    assert {entry.run_id for entry in entries} == {run_id}


def test_an_event_says_what_dagsters_own_would_say(instance: dg.DagsterInstance) -> None:
    run_two_days(instance, ReportingIOManager())
    entry = materializations(instance)[0]
    event = entry.asset_materialization
    assert event is not None
    assert event.tags == {
        "dagster/partition/date": "2013-08-02",
        "dagster/partition/unit": "EWR",
        "dagster/data_version": "digest of 2013-08-02|EWR",
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": "v1",
    }
    assert event.metadata == {
        "rows": dg.IntMetadataValue(16),
        "state": dg.TextMetadataValue("committed"),
        "path": dg.PathMetadataValue("/2013-08-02|EWR"),
    }
    assert (entry.step_key, entry.job_name) == ("carrier", "__ephemeral_asset_job__")
    assert entry.message == "Committed 2013-08-02|EWR"


def test_the_log_of_the_run_shows_the_events_of_its_step(instance: dg.DagsterInstance) -> None:
    run_id = run_two_days(instance, ReportingIOManager())
    logged = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert [entry.step_key for entry in logged] == ["carrier"] * 4
    assert [entry.get_dagster_event().step_key for entry in logged] == ["carrier"] * 4


def test_without_deferring_dagster_writes_every_event_a_second_time(
    instance: dg.DagsterInstance,
) -> None:
    run_two_days(instance, ReportingIOManager(), deferring=False)
    assert len(materializations(instance)) == 8


def test_deferring_does_not_change_the_stored_run(instance: dg.DagsterInstance) -> None:
    run_id = run_two_days(instance, ReportingIOManager())
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert "dagster/defer_asset_events" not in run.tags


def status(instance: dg.DagsterInstance) -> dict[str, AssetPartitionStatus | None]:
    with partition_loading_context(dynamic_partitions_store=instance):
        found = instance.get_status_by_partition(
            DEPARTURES, PARTITIONS.get_partition_keys(), PARTITIONS
        )
    return {str(key): value for key, value in (found or {}).items() if value is not None}


def test_reported_partitions_are_green_and_the_others_are_not(
    instance: dg.DagsterInstance,
) -> None:
    run_two_days(instance, ReportingIOManager())
    assert status(instance) == dict.fromkeys(KEYS_OF_TWO_DAYS, AssetPartitionStatus.MATERIALIZED)
    report_outside_runs(instance, group("2013-08-05|LGA"))
    assert status(instance)["2013-08-05|LGA"] == AssetPartitionStatus.MATERIALIZED
    assert len(status(instance)) == 5


def test_what_no_run_reported_is_reported_without_a_run(instance: dg.DagsterInstance) -> None:
    report_outside_runs(instance, group("2013-08-01|EWR", "2013-08-01|JFK"))
    assert [entry.run_id for entry in materializations(instance)] == ["", ""]
    assert materialized_partitions(instance, DEPARTURES) == {"2013-08-01|EWR", "2013-08-01|JFK"}


def test_an_empty_group_reports_nothing(instance: dg.DagsterInstance) -> None:
    report_outside_runs(instance, group())
    assert materializations(instance) == []


def test_a_group_of_more_than_one_batch_is_reported_whole(instance: dg.DagsterInstance) -> None:
    keys = {f"2013-08-01|U{number}" for number in range(2 * MAX_EVENTS_PER_BATCH + 1)}
    report_outside_runs(instance, group(*keys))
    assert materialized_partitions(instance, DEPARTURES) == keys


def test_reporting_again_changes_nothing_but_the_latest_event(
    instance: dg.DagsterInstance,
) -> None:
    report_outside_runs(instance, group("2013-08-01|EWR"))
    report_outside_runs(instance, group("2013-08-01|EWR"))
    assert materialized_partitions(instance, DEPARTURES) == {"2013-08-01|EWR"}


@pytest.mark.parametrize("key", ["2013-08-01", "2013-08-01|EWR|T1"])
def test_a_key_that_is_not_day_and_unit_is_refused(instance: dg.DagsterInstance, key: str) -> None:
    with pytest.raises(ValueError, match="zip"):
        report_outside_runs(instance, group(key))


def test_reporting_leaves_the_mark_and_a_wipe_changes_it(instance: dg.DagsterInstance) -> None:
    before = event_log_mark(instance)
    report_outside_runs(instance, group("2013-08-01|EWR"))
    assert event_log_mark(instance) == before

    instance.wipe_assets([DEPARTURES])
    wiped = event_log_mark(instance)
    assert wiped != before
    assert materialized_partitions(instance, DEPARTURES) == set()

    report_outside_runs(instance, group("2013-08-01|EWR"))
    assert materialized_partitions(instance, DEPARTURES) == {"2013-08-01|EWR"}
    assert event_log_mark(instance) == wiped


def test_another_database_has_another_mark(
    instance: dg.DagsterInstance, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = event_log_mark(instance)
    close_connections()
    monkeypatch.setenv(URL_VARIABLE, database)
    with open_instance(tmp_path / "other") as other:
        assert event_log_mark(other) != before


@pytest.fixture
def without_private_class() -> Iterator[ModuleType]:
    """The module as it is where Dagster has moved its private class."""
    name = "event_log_in_the_future"
    spec = importlib.util.spec_from_file_location(name, event_log.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)  # dataclasses look their module up
        with pytest.MonkeyPatch.context() as moved:
            moved.setitem(sys.modules, "dagster._core.events", None)
            spec.loader.exec_module(module)
        assert module.StepMaterializationData is None
        yield module


def test_without_the_private_class_events_outside_runs_are_the_same(
    instance: dg.DagsterInstance, without_private_class: ModuleType
) -> None:
    report_outside_runs(instance, group("2013-08-01|EWR"))
    without_private_class.report_outside_runs(instance, group("2013-08-01|EWR"))
    batched, public = materializations(instance)
    assert content(public) == content(batched)
    assert public.run_id == batched.run_id == ""


class FutureIOManager(ReportingIOManager):
    """Reports through the public calls."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        assert obj is not None
        self._module.report_in_run(context, group(*sorted(map(str, context.asset_partition_keys))))


def test_without_the_private_class_events_of_a_run_are_the_same(
    instance: dg.DagsterInstance, without_private_class: ModuleType
) -> None:
    run_id = run_two_days(instance, FutureIOManager(without_private_class))
    public = materializations(instance)
    run_two_days(instance, ReportingIOManager())
    batched = materializations(instance)[4:]
    assert sorted(map(repr, map(content, public))) == sorted(map(repr, map(content, batched)))
    assert {(entry.run_id, entry.step_key) for entry in public} == {(run_id, "carrier")}


# Dagster's own backfill code calls what Dagster has deprecated.
@pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`:DeprecationWarning")
def test_a_backfill_counts_the_reported_partitions_and_succeeds(
    instance: dg.DagsterInstance,
) -> None:
    target = ModuleTarget(
        module_name="backfill_assets_tests.resources.reporting_assets",
        attribute="defs",
        working_directory=None,
        location_name="reporting",
    )
    with create_test_daemon_workspace_context(target, instance) as workspace:
        backfill = PartitionBackfill.from_asset_partitions(
            asset_graph=workspace.create_request_context().asset_graph,
            backfill_id="two_days",
            tags={},
            backfill_timestamp=datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
            asset_selection=[DEPARTURES],
            partition_names=KEYS_OF_TWO_DAYS,
            dynamic_partitions_store=instance,
            all_partitions=False,
            title=None,
            description=None,
            run_config=None,
        )
        instance.add_backfill(backfill)
        logger = get_default_daemon_logger("BackfillDaemon")
        for _pass in range(4):
            list(execute_backfill_iteration(workspace, logger))
            wait_for_runs_to_finish(instance, timeout=60)
    finished = instance.get_backfill("two_days")
    assert finished is not None
    assert finished.status == BulkActionStatus.COMPLETED_SUCCESS
    assert materialized_partitions(instance, DEPARTURES) == set(KEYS_OF_TWO_DAYS)
