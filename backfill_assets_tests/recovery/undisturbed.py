"""The year as nobody disturbs it: computed in this process, without Dagster and without a kill."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from backfill_assets.core.cycles import Bounds
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.source import FlightsSource
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.partition_stream import PartitionStream
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore

if TYPE_CHECKING:
    from pathlib import Path

AFTERWARDS = datetime(2014, 2, 1, tzinfo=UTC)  # every day of the year is closed


def complete_store(root: Path, source_url: str) -> LocalPartitionStore:
    """Commit all expected partitions in ``root``, one after the other."""
    store = LocalPartitionStore(root, [FLIGHTS])
    store.prepare()
    source = FlightsSource(lambda: source_url)
    project = Project(
        data_sets=[DataSet(FLIGHTS, source)], store=store, clock=FixedClock(AFTERWARDS)
    )
    missing = project.plan(FLIGHTS).missing
    with store.attempt("undisturbed") as attempt:
        for _, queries in groupby(FLIGHTS.queries, key=lambda query: query.category):
            stream = _stream(project, source, missing.only(list(queries)))
            for group in stream.groups():
                for partition, table in group:
                    attempt.stage(partition, table)
                stream.note_committed(
                    PartitionSet.of(FLIGHTS, [file.partition for file in attempt.publish()])
                )
            stream.finish()
    return store


def files_of(root: Path) -> dict[str, bytes]:
    """Return the content of each file of the flights, by its path below the root."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in (root / FLIGHTS.name).rglob("*")
        if path.is_file()
    }


def _stream(project: Project, source: FlightsSource, wanted: PartitionSet) -> PartitionStream:
    queries = [query for query in FLIGHTS.queries if query.name in wanted.masks]
    assignment = project.assignment(wanted, replace=False)
    return PartitionStream(assignment=assignment, queries=queries, source=source, bounds=Bounds())
