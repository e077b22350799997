"""One multi-asset for each category: a single query serves its value types, units and days.

Dagster reads the annotation of ``context`` when the asset is defined, so the annotations of this
module are not postponed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from backfill_assets.core.catalogue import Catalogue, Grid
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import Query
from backfill_assets.defs.partitions import partitions_definition
from backfill_assets.resources.event_log import automatic_events_deferred
from backfill_assets.resources.launchpad import errors_in_words
from backfill_assets.resources.partition_io_manager import wants_replacement
from backfill_assets.resources.partition_stream import PartitionStream
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.resources.run_requests import (
    ON_COMMITTED_TAG,
    REPLACE_STALE,
    SENSOR_TAG,
    asset_key,
    partitions_to_make,
)

IO_MANAGER = "partition_io_manager"


def partition_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the assets of every data set."""
    return [
        _category_asset(project, data_set, grid, queries)
        for data_set in project.data_sets
        for grid in data_set.catalogue.grids
        for queries in _by_category(grid)
    ]


def _by_category(grid: Grid) -> list[list[Query]]:
    categories: dict[str, list[Query]] = defaultdict(list)
    for query in grid.queries:
        categories[query.category].append(query)
    return list(categories.values())


def _category_asset(
    project: Project, data_set: DataSet, grid: Grid, queries: Sequence[Query]
) -> dg.AssetsDefinition:
    catalogue = data_set.catalogue
    by_output = {query.value_type: query for query in queries}

    @dg.multi_asset(
        name=_step_name(catalogue, grid, queries[0].category),
        description=f"{catalogue.name} by {queries[0].category}, one query for all value types.",
        outs={
            name: _asset_out(query, project.store.file_format) for name, query in by_output.items()
        },
        partitions_def=partitions_definition(catalogue, grid),
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
        group_name=catalogue.name,
    )
    def category(context: dg.AssetExecutionContext) -> Iterator[dg.Output[PartitionStream]]:
        selected = [by_output[name] for name in context.op_execution_context.selected_output_names]
        chosen = [query for query in queries if query in selected]
        with errors_in_words():
            stream = _stream(project, data_set, chosen, context.run.tags)
        with automatic_events_deferred(context):
            for query in chosen:
                # The first one commits the partitions of all; see PartitionIOManager.
                yield dg.Output(stream, output_name=query.value_type)
        with errors_in_words():
            stream.finish()

    return category


def _stream(
    project: Project, data_set: DataSet, queries: Sequence[Query], tags: Mapping[str, str]
) -> PartitionStream:
    return PartitionStream(
        assignment=project.assignment(
            _requested(data_set.catalogue, queries, tags),
            replace=wants_replacement(tags),
            stale_only=tags.get(ON_COMMITTED_TAG) == REPLACE_STALE,
        ),
        queries=queries,
        source=data_set.source,
        # Runs that a person launched are not bounded.
        bounds=project.bounds if SENSOR_TAG in tags else Bounds(),
        asked_by_person=SENSOR_TAG not in tags,
    )


def _requested(
    catalogue: Catalogue, queries: Sequence[Query], tags: Mapping[str, str]
) -> PartitionSet:
    try:
        return partitions_to_make(catalogue, queries, tags)
    except UnknownPartitionError as error:
        message = f"{error}. The run was asked for under another catalogue; launch it anew"
        raise UnknownPartitionError(message) from None


def _asset_out(query: Query, file_format: str) -> dg.AssetOut:
    return dg.AssetOut(
        key=asset_key(query),
        is_required=False,
        io_manager_key=IO_MANAGER,
        description=query.description,
        code_version=str(query.version),
        kinds={file_format},
        metadata={
            "first day": query.first_day.isoformat(),
            "columns": f"date, unit, {query.category} ({query.category_type}), "
            f"value ({query.column_type})",
        },
    )


def _step_name(catalogue: Catalogue, grid: Grid, category: str) -> str:
    name = f"{catalogue.name}_by_{category}"
    return name if len(_grids_of(catalogue, category)) == 1 else f"{name}_{grid.first_day:%Y%m%d}"


def _grids_of(catalogue: Catalogue, category: str) -> list[Grid]:
    return [g for g in catalogue.grids if any(q.category == category for q in g.queries)]
