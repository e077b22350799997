"""What a Dagster run was asked for, and how the sensor asks: both in the tags of runs.

Here: reading the tags of any run, whoever launched it, as a set of partitions, and writing the tags
of a cycle. Never ``context.partition_keys``: in a backfill that was launched from a job's page
Dagster gives it the first key only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.closing import ONE_DAY
from backfill_assets.core.errors import PartitionsRefusedError, UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import parse_partition_key, partition_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.cycles import Cycle
    from backfill_assets.core.partitions import Query

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
PARTITION_TAG = "dagster/partition"
DATE_TAG = "dagster/partition/date"
UNIT_TAG = "dagster/partition/unit"
PRIORITY_TAG = "dagster/priority"
DEFER_TAG = "dagster/defer_asset_events"
SENSOR_TAG = "backfill_assets/cycle"  # carried by the runs of the sensor: what the cycle takes up
ON_COMMITTED_TAG = "backfill_assets/on_committed"
REPLACE = "replace"
REPLACE_STALE = "replace stale"  # of the runs with which the sensor restates

UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def asset_key(query: Query) -> dg.AssetKey:
    """Return the Dagster asset of a query."""
    return dg.AssetKey(list(query.asset_path))


def queries_of(catalogue: Catalogue, keys: Iterable[dg.AssetKey]) -> list[Query]:
    """Return the queries among the given assets; other assets are none of ours."""
    wanted = {tuple(key.path) for key in keys}
    return [query for query in catalogue.queries if query.asset_path in wanted]


def requested_partitions(
    catalogue: Catalogue, queries: Sequence[Query], tags: Mapping[str, str]
) -> PartitionSet:
    """Return what a run was asked for, by its tags; nothing where it has no partition.

    A range is a rectangle: from day to day, and from unit to unit in catalogue order.

    Raises:
        UnknownPartitionError: a tag names an unknown unit, or is no partition key.
    """
    bounds = _bounds(tags)
    if bounds is None:
        return PartitionSet.empty(catalogue)
    (first_day, first_unit), (last_day, last_unit) = map(parse_partition_key, bounds)
    units = _units_between(catalogue, first_unit, last_unit)
    return PartitionSet.rectangle(catalogue, queries, _days(first_day, last_day), units)


def partitions_to_make(
    catalogue: Catalogue, queries: Sequence[Query], tags: Mapping[str, str]
) -> PartitionSet:
    """Return what a run was asked for, which is something: else it would succeed without work.

    Dagster's dialog ends a single run at its last missing partition, which may be of an earlier
    unit than its first one.

    Raises:
        UnknownPartitionError: a tag names an unknown unit, or is no partition key.
        PartitionsRefusedError: the run names no partition, or a range that holds none.
    """
    requested = requested_partitions(catalogue, queries, tags)
    if not requested:
        bounds = _bounds(tags)
        found = "the run names no partition" if bounds is None else _why_empty(catalogue, *bounds)
        message = f"{found}; nothing was done. Launch it anew, as a backfill or with a partition"
        raise PartitionsRefusedError(message)
    return requested


def in_flight(catalogue: Catalogue, runs: Iterable[dg.DagsterRun]) -> PartitionSet:
    """Return all that the given unfinished runs were asked for.

    A run whose tags cannot be read (made under an older catalogue) takes nothing up.
    """
    taken = PartitionSet.empty(catalogue)
    for run in runs:
        try:
            taken = taken | requested_partitions(catalogue, run_queries(catalogue, run), run.tags)
        except UnknownPartitionError:
            continue
    return taken


def run_queries(catalogue: Catalogue, run: dg.DagsterRun) -> list[Query]:
    """Return the queries that a run targets."""
    if run.asset_selection is not None:
        return queries_of(catalogue, run.asset_selection)
    return list(job_queries(catalogue).get(run.job_name, ()))


def job_name(catalogue: Catalogue, first_day: date) -> str:
    """Return the name of the job of a grid: one job for each partitions definition."""
    if first_day == catalogue.first_day:
        return f"{catalogue.name}_partitions"
    return f"{catalogue.name}_partitions_from_{first_day:%Y_%m_%d}"


def coverage_job_name(catalogue: Catalogue) -> str:
    """Return the name of the job that looks at a catalogue's coverage."""
    return f"{catalogue.name}_coverage_and_checks"


def job_queries(catalogue: Catalogue) -> dict[str, tuple[Query, ...]]:
    """Return the queries of each of the catalogue's jobs."""
    return {job_name(catalogue, grid.first_day): grid.queries for grid in catalogue.grids}


def run_request(
    catalogue: Catalogue, cycle: Cycle, *, priority: int, restates: bool = False
) -> dg.RunRequest:
    """Return the request for one cycle: one run over a rectangle, with just the assets that lack.

    It has no run key: a run key is spent for ever, also when its run fails.

    Args:
        restates: Whether the cycle makes stale partitions again.
    """
    tags = {
        RANGE_START_TAG: partition_key(cycle.first_day, cycle.units[0]),
        RANGE_END_TAG: partition_key(cycle.last_day, cycle.units[-1]),
        PRIORITY_TAG: str(priority),
        DEFER_TAG: "true",
        SENSOR_TAG: describe(cycle),
    }
    if restates:
        tags[ON_COMMITTED_TAG] = REPLACE_STALE
    return dg.RunRequest(
        job_name=job_name(catalogue, cycle.queries[0].first_day),
        asset_selection=[asset_key(query) for query in cycle.queries],
        asset_check_keys=[],  # None would be all checks of these assets, in every run
        tags=tags,
    )


def describe(cycle: Cycle) -> str:
    """Return a cycle in a few words, for the runs page."""
    days = f"{cycle.last_day}"
    if cycle.first_day != cycle.last_day:
        days += f" back to {cycle.first_day}"
    units = ", ".join(cycle.units)
    if cycle.units == cycle.partitions.catalogue.unit_names:
        units = "all units"
    categories = ", ".join(dict.fromkeys(query.category for query in cycle.queries))
    return f"{len(cycle.partitions)} partitions: {categories}; {units}; {days}"[:255]


def _bounds(tags: Mapping[str, str]) -> tuple[str, str] | None:
    if RANGE_START_TAG in tags and RANGE_END_TAG in tags:
        return tags[RANGE_START_TAG], tags[RANGE_END_TAG]
    if PARTITION_TAG in tags:
        return tags[PARTITION_TAG], tags[PARTITION_TAG]
    if DATE_TAG in tags and UNIT_TAG in tags:
        key = f"{tags[DATE_TAG]}|{tags[UNIT_TAG]}"
        return key, key
    return None


def _why_empty(catalogue: Catalogue, start: str, end: str) -> str:
    return (
        f"the range {start} … {end} holds no partition: it ends before it begins, on an earlier "
        f"day or an earlier unit in the order {', '.join(catalogue.unit_names)}"
    )


def _units_between(catalogue: Catalogue, first: str, last: str) -> int:
    for unit in (first, last):
        if unit not in catalogue.unit_bits:
            message = f"unit {unit!r}: {catalogue.name} has {', '.join(catalogue.unit_names)}"
            raise UnknownPartitionError(message)
    low, high = catalogue.unit_bits[first], catalogue.unit_bits[last]
    return (high << 1) - low if high >= low else 0


def _days(first: date, last: date) -> Iterator[date]:
    day = first
    while day <= last:
        yield day
        day += ONE_DAY
