"""A small project in Dagster: ticks, and runs as the daemon and people start them, in this process.

The definitions, the sensor, the jobs and the IO manager are the real ones; runs are executed at
once instead of in processes of their own.
"""

# ruff: noqa: TID251 - makes runs that are queued, or that started and do not go on

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.events import DagsterEvent
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from backfill_assets.defs.location import build_definitions
from backfill_assets.resources.run_requests import SENSOR_TAG, asset_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagster._core.definitions.sensor_definition import SensorExecutionData

    from backfill_assets.core.partitions import Query
    from backfill_assets.resources.project import Project

SENSOR = "missing_partitions_sensor"
ANY_ASSETS = "__ASSET_JOB"  # the job of what people launch from an asset's page


class Dagster:
    """One project on one instance, and the cursor of its sensor."""

    def __init__(self, project: Project, instance: dg.DagsterInstance) -> None:
        self.project = project
        self.instance = instance
        self.repository = build_definitions(project).get_repository_def()
        self.cursor: str | None = None

    def tick(self) -> SensorExecutionData:
        """Evaluate the sensor once, as the daemon does, and keep its cursor."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=self.repository
        ) as context:
            found = self.repository.get_sensor_def(SENSOR).evaluate_tick(context)
        self.cursor = found.cursor
        return found

    def asks(self) -> list[dg.RunRequest]:
        """Evaluate the sensor once, and return the runs over partitions that it asks for."""
        return [r for r in self.tick().run_requests or () if SENSOR_TAG in r.tags]

    def settled(self) -> str | None:
        """Evaluate the sensor until it asks for nothing; return why it does not.

        On the way it may ask for a look at the coverage, and for nothing else.
        """
        for _ in range(5):
            found = self.tick()
            if not found.run_requests:
                return found.skip_message
            assert not [r for r in found.run_requests if SENSOR_TAG in r.tags]
        return None

    def tick_and_run(self) -> list[dg.RunRequest]:
        """Evaluate the sensor once, and execute the runs over partitions that it asks for."""
        requests = self.asks()
        for request in requests:
            self.execute(request)
        return requests

    def complete(self) -> list[dg.RunRequest]:
        """Tick and run until the sensor asks for nothing any more; return what it asked for."""
        asked: list[dg.RunRequest] = []
        while requests := self.tick_and_run():
            asked += requests
            assert len(asked) < 100, "the sensor does not come to an end"
        return asked

    def execute(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Execute a run of the sensor."""
        return self.repository.get_job(request.job_name).execute_in_process(
            instance=self.instance,
            tags=dict(request.tags),
            asset_selection=list(request.asset_selection or ()),
            raise_on_error=False,
        )

    def ask(self, queries: Iterable[Query], tags: dict[str, str]) -> dg.ExecuteInProcessResult:
        """Execute a run that a person launched."""
        return self.repository.get_job(ANY_ASSETS).execute_in_process(
            instance=self.instance,
            tags=tags,
            asset_selection=[asset_key(query) for query in queries],
            raise_on_error=False,
        )

    def unfinished(
        self,
        status: dg.DagsterRunStatus,
        queries: Sequence[Query],
        tags: dict[str, str],
        *,
        job: str = ANY_ASSETS,
        started: timedelta = timedelta(0),
    ) -> dg.DagsterRun:
        """Leave a run behind that does not go on.

        Args:
            started: How long ago it was started, where it was.
        """
        location = RegisteredCodeLocationOrigin("tests")
        is_started = status in {dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING}
        run = self.instance.create_run_for_job(
            self.repository.get_job(job),
            remote_job_origin=RemoteRepositoryOrigin(location, "tests").get_job_origin(job),
            tags=tags,
            asset_selection={asset_key(query) for query in queries},
            status=dg.DagsterRunStatus.STARTING if is_started else status,
        )
        if is_started:
            self._start(run, datetime.now(UTC) - started)
        if status is dg.DagsterRunStatus.CANCELING:
            self.instance.report_run_canceling(run)
        return run

    def _start(self, run: dg.DagsterRun, at: datetime) -> None:
        event = DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
        self.instance.report_dagster_event(event, run.run_id, timestamp=at.timestamp())

    def materialized(self, *queries: Query) -> set[str]:
        """Return what Dagster shows as materialized, as ``category/value_type/day|unit``."""
        return {
            f"{query.name}/{key}"
            for query in queries
            for key in self.instance.get_materialized_partitions(asset_key(query))
        }

    def events(self, query: Query) -> list[dg.AssetMaterialization]:
        """Return the materializations of an asset, oldest first."""
        records = self.instance.fetch_materializations(asset_key(query), 5_000, ascending=True)
        return [r.asset_materialization for r in records.records if r.asset_materialization]


def a_range(start: str, end: str) -> dict[str, str]:
    """Return the tags of a rectangle."""
    return {
        "dagster/asset_partition_range_start": start,
        "dagster/asset_partition_range_end": end,
    }


def a_key(key: str) -> dict[str, str]:
    """Return the tags that the page gives a run over one partition."""
    day, unit = key.split("|")
    return {
        "dagster/partition": key,
        "dagster/partition/date": day,
        "dagster/partition/unit": unit,
    }


def failures(result: dg.ExecuteInProcessResult) -> list[str]:
    """Return what the failed steps of a run said, with all causes."""
    return [_told(event.step_failure_data.error) for event in result.get_step_failure_events()]


def _told(error: Any) -> str:
    return "" if error is None else f"{error.message}{_told(error.cause)}"
