"""What Dagster is told about committed partitions: events, in batches.

Here: reporting what was committed, keeping Dagster from reporting it a second time, and asking what
it has been told. Not here: what *is* committed. The store says that; the event log is a display.

This is the one module that may import from ``dagster._core``. Dagster's public calls write one
event at a time, 4 to 40 ms each; a batch costs about 1 ms a partition. Where the private class has
moved, the public calls are used: slower, and otherwise the same.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

import dagster as dg
from dagster._time import get_current_timestamp

try:
    from dagster._core.events import StepMaterializationData
except ImportError:
    StepMaterializationData = None  # type: ignore[assignment,misc]

_logger = logging.getLogger(__name__)

# The two names under which catalogues are partitioned, in the order in which they stand in a key.
DIMENSIONS = ("date", "unit")

# Dagster reads these words from tags; they are part of its stored format.
DATA_VERSION_TAG = "dagster/data_version"
DATA_VERSION_IS_OURS_TAG = "dagster/data_version_is_user_provided"
CODE_VERSION_TAG = "dagster/code_version"
DEFER_ASSET_EVENTS_TAG = "dagster/defer_asset_events"
NO_RUN = ""  # run id and job name of an event that belongs to no run

# One INSERT of more rows than this gains nothing, and 7 parameters a row must stay below 65,536.
MAX_EVENTS_PER_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPartition:
    """A committed file, as its event tells it.

    Attributes:
        partition_key: Dagster's key of it, ``day|unit``.
        data_version: The digest of its content.
        metadata: What the event shows beside it: rows, bytes, path, state.
    """

    partition_key: str
    data_version: str
    metadata: Mapping[str, dg.MetadataValue | str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedGroup:
    """What one publish committed of one asset.

    Attributes:
        asset_key: The asset.
        code_version: The version of its query.
        partitions: The committed ones, in the order in which they are to be shown.
    """

    asset_key: dg.AssetKey
    code_version: str
    partitions: Sequence[CommittedPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogMark:
    """Which memory Dagster has. Equal marks: no asset was wiped and no database replaced between.

    Attributes:
        database: Identifies the database; another one has another history, or none.
        latest_wipe: The storage id of the latest wipe of any asset, 0 for none.
    """

    database: str
    latest_wipe: int


class _IdentifiedStorage(Protocol):
    def get_run_storage_id(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    run_id: str
    job_name: str
    step_key: str | None


def report_in_run(context: dg.OutputContext, group: CommittedGroup) -> None:
    """Report a committed group as work of the run that ``context`` belongs to.

    Call it right after the group is published. A crash in between leaves the group committed and
    unreported; `report_outside_runs` makes up for that. A crash inside leaves a whole number of
    batches reported.
    """
    events = list(_materializations(group))
    if StepMaterializationData is None:
        for event in events:
            context.log_event(event)
        return
    origin = _Origin(run_id=context.run_id, job_name=context.job_name, step_key=context.step_key)
    _store(context.step_context.instance, events, origin)


def report_outside_runs(instance: dg.DagsterInstance, group: CommittedGroup) -> None:
    """Report a group that stands committed although no run's event says so.

    Backfills count only the events of their own runs, so these turn the partitions green and end
    no backfill. A crash inside leaves a whole number of batches reported.
    """
    events = list(_materializations(group))
    if StepMaterializationData is None:
        for event in events:
            instance.report_runless_asset_event(event)
        return
    _store(instance, events, _Origin(run_id=NO_RUN, job_name=NO_RUN, step_key=None))


@contextmanager
def automatic_events_deferred(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Keep Dagster from writing its own event for each partition of the outputs yielded inside.

    For runs that a person launched; those of the sensor carry the tag from the start. Dagster looks
    at the tags of the run in memory after each output; the stored run does not change, and other
    assets of the same run report as ever.
    """
    tags = context.run.tags
    if not isinstance(tags, dict):
        _logger.warning("Dagster's tags cannot be changed; its own events will be written as well.")
        yield
        return
    before = dict(tags)
    tags[DEFER_ASSET_EVENTS_TAG] = "true"
    try:
        yield
    finally:
        tags.clear()
        tags.update(before)


def materialized_partitions(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> set[str]:
    """Return the keys of which Dagster remembers a materialization since the last wipe."""
    return instance.get_materialized_partitions(asset_key)


def event_log_mark(instance: dg.DagsterInstance) -> EventLogMark:
    """Return the mark of Dagster's memory, in two small queries whatever the number of assets.

    It does not see that single runs, with their events, were deleted.
    """
    wipes = instance.event_log_storage.get_event_records(
        dg.EventRecordsFilter(dg.DagsterEventType.ASSET_WIPED), limit=1
    )
    return EventLogMark(
        database=cast("_IdentifiedStorage", instance.run_storage).get_run_storage_id(),
        latest_wipe=wipes[0].storage_id if wipes else 0,
    )


def _materializations(group: CommittedGroup) -> Iterator[dg.AssetMaterialization]:
    for partition in group.partitions:
        yield dg.AssetMaterialization(
            asset_key=group.asset_key,
            partition=partition.partition_key,
            description=f"Committed {partition.partition_key}",
            metadata=dict(partition.metadata),
            tags={
                **_dimension_tags(partition.partition_key),
                DATA_VERSION_TAG: partition.data_version,
                DATA_VERSION_IS_OURS_TAG: "true",
                CODE_VERSION_TAG: group.code_version,
            },
        )


def _dimension_tags(partition_key: str) -> dict[str, str]:
    parts = partition_key.split("|")
    return {
        f"dagster/partition/{dimension}": part
        for dimension, part in zip(DIMENSIONS, parts, strict=True)
    }


def _store(
    instance: dg.DagsterInstance, events: Sequence[dg.AssetMaterialization], origin: _Origin
) -> None:
    # Dagster's clock and not ours: it compares these times with those of its wipes.
    timestamp = get_current_timestamp()
    entries = [_entry(event, origin, timestamp) for event in events]
    for first in range(0, len(entries), MAX_EVENTS_PER_BATCH):
        instance.event_log_storage.store_event_batch(entries[first : first + MAX_EVENTS_PER_BATCH])


def _entry(event: dg.AssetMaterialization, origin: _Origin, timestamp: float) -> dg.EventLogEntry:
    dagster_event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=origin.job_name,
        message=event.description,
        event_specific_data=StepMaterializationData(event),
        pid=os.getpid(),
        step_key=origin.step_key,
    )
    return dg.EventLogEntry(  # type: ignore[no-untyped-call]  # its constructor has no types
        error_info=None,
        level=logging.DEBUG,  # as Dagster's own materializations
        user_message="",
        run_id=origin.run_id,
        timestamp=timestamp,
        step_key=origin.step_key,
        job_name=origin.job_name,
        dagster_event=dagster_event,
    )
