"""``PartitionIOManager``: commits what assets return as files of the store, and loads it again.

It takes a stream of one category, or a single asset's own value: a frame, a mapping of partition
keys to frames, or an iterator of such pairs. Success means that every partition stands committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_origin

import dagster as dg
import pyarrow as pa

from backfill_assets.core.errors import (
    CorruptPartitionError,
    PartitionsRefusedError,
    PublishRefusedError,
    SourceError,
    SourceNotReadyError,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.resources.event_log import (
    CommittedGroup,
    CommittedPartition,
    report_in_run,
)
from backfill_assets.resources.partition_stream import Group, PartitionStream
from backfill_assets.resources.run_requests import (
    ON_COMMITTED_TAG,
    REPLACE,
    REPLACE_STALE,
    SENSOR_TAG,
    asset_key,
    partitions_to_make,
)
from backfill_assets.stores.tables import is_data_frame, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from backfill_assets.core.partitions import Partition, Query
    from backfill_assets.core.store import Attempt, CommitRecord, Published
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.publishing_log import RunClaims

GROUP_FILES = 400  # of an asset's own stream; one flush serves them all
REPORT_SLICE = 500  # skipped partitions whose records are read before they are reported


class PartitionIOManager(dg.IOManager):
    """Files of the store in, files of the store out.

    Args:
        attempt: The run's own; open for as long as the run's process lives.
        tags: The run's tags: what it was asked for.
        claims: The run's own; None where the project keeps no log.
    """

    def __init__(
        self,
        project: Project,
        attempt: Attempt[Any],
        tags: Mapping[str, str],
        claims: RunClaims | None = None,
    ) -> None:
        self._project = project
        self._attempt = attempt
        self._tags = tags
        self._claims = claims

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Commit what an asset returned."""
        if isinstance(obj, PartitionStream):
            if not obj.is_consumed:
                self._commit_stream(context, obj)
            context.add_output_metadata(_outcome(obj))
            return
        self._commit_value(context, obj)

    def load_input(self, context: dg.InputContext) -> object:
        """Return upstream partitions, as the input's annotation asks.

        ``pd.DataFrame`` gives one frame of all partitions, ``dict[str, pd.DataFrame]`` one for each
        partition key, whatever their number; ``pa.Table`` gives an Arrow table of all.

        Raises:
            MissingPartitionError: an upstream partition is not committed; it names which and how.
        """
        query = self._project.query_of(context.asset_key.path)
        catalogue = self._project.catalogue_of(query)
        wanted = PartitionSet.of(
            catalogue, [catalogue.partition_of(query, key) for key in context.asset_partition_keys]
        )
        # What will never exist is not missing, unless nothing else was asked for.
        expected = [p for p in wanted if catalogue.why_not_expected(p) is None]
        # Oldest first, as a reader of a history expects it.
        partitions = sorted(expected or wanted, key=lambda p: (p.day, catalogue.unit_bits[p.unit]))
        tables = {p.key: self._project.store.read(p) for p in partitions}
        if get_origin(context.dagster_type.typing_type) is dict:
            return {key: table.to_pandas() for key, table in tables.items()}
        whole = pa.concat_tables([schema_of(query).empty_table(), *tables.values()])
        return whole if context.dagster_type.typing_type is pa.Table else whole.to_pandas()

    def _commit_stream(self, context: dg.OutputContext, stream: PartitionStream) -> None:
        replace = wants_replacement(self._tags)
        stream.claims = self._claims
        for group in stream.groups():
            for partition, table in group:
                try:
                    source = stream.fingerprint(partition.day)
                    self._attempt.stage(partition, table, source=source)
                except SourceError as error:  # an infinite value: the others are committed
                    stream.note_failure(partition.day, error)
            published = self._publish(stream, group, replace=replace)
            stream.note_committed([file.partition for file in published])
            told = [self._told(file) for file in published]
            if self._claims is not None:
                self._claims.complete({file.partition: file.record.digest for file in published})
            self._report(context, published, told)
        if self._claims is not None:
            note_failures(self._claims, stream)
        if SENSOR_TAG not in self._tags:
            self._report_skipped(context, stream)
            _report_not_expected(context, stream)

    def _publish(
        self, stream: PartitionStream, group: Group, *, replace: bool
    ) -> Sequence[Published]:
        """Publish a group; where some targets refuse, the others are published all the same."""
        try:
            return self._attempt.publish(replace=replace)
        except PublishRefusedError as refusal:
            done = {file.partition for file in refusal.published}
            for partition, _ in group:
                if partition not in done:
                    stream.note_failure(partition.day, refusal)
            return refusal.published

    def _told(self, file: Published) -> CommittedPartition:
        """Return what Dagster is told about a published partition, and about its attempts."""
        metadata: dict[str, str | int] = {
            "state": "unchanged" if file.adopted else "committed",
            "rows": file.record.rows,
            "bytes": file.size,
        }
        attempt = None if self._claims is None else self._claims.attempt(file.partition)
        if attempt is not None:
            metadata["attempt"] = attempt.number
            if attempt.previous is not None:
                metadata["previous attempt"] = attempt.previous.error_message
        return committed_partition(self._project, file.partition, metadata, file.record.digest)

    def _report(
        self,
        context: dg.OutputContext,
        published: Sequence[Published],
        told: Sequence[CommittedPartition],
    ) -> None:
        by_query: dict[Query, list[CommittedPartition]] = {}
        for file, partition in zip(published, told, strict=True):
            by_query.setdefault(file.partition.query, []).append(partition)
        for query, partitions in by_query.items():
            report_in_run(context, committed_group(query, partitions))

    def _report_skipped(self, context: dg.OutputContext, stream: PartitionStream) -> None:
        """Tell Dagster about what stood committed: a backfill counts its own runs' events."""
        skipped = list(stream.stood)
        for first in range(0, len(skipped), REPORT_SLICE):
            by_query: dict[Query, list[CommittedPartition]] = {}
            for partition, record in self._records(skipped[first : first + REPORT_SLICE], stream):
                metadata: dict[str, str | int] = {"state": "committed before", "rows": record.rows}
                told = committed_partition(self._project, partition, metadata, record.digest)
                by_query.setdefault(partition.query, []).append(told)
            for query, partitions in by_query.items():
                report_in_run(context, committed_group(query, partitions))

    def _records(
        self, partitions: Sequence[Partition], stream: PartitionStream
    ) -> Iterator[tuple[Partition, CommitRecord]]:
        """Yield commit records; a damaged file is a failure of its day and of nothing else."""
        for partition in partitions:
            try:
                yield from self._project.store.records([partition]).items()
            except CorruptPartitionError as error:
                stream.note_failure(partition.day, error)

    def _commit_value(self, context: dg.OutputContext, value: object) -> None:
        """Commit one asset's own value; Dagster writes its own events for these."""
        query = self._project.query_of(context.asset_key.path)
        catalogue = self._project.catalogue_of(query)
        requested = partitions_to_make(catalogue, [query], self._tags)
        replace = wants_replacement(self._tags)
        assignment = self._project.assignment(requested, replace=replace)
        done = PartitionSet.empty(catalogue)
        rows = 0
        try:
            for partition, frame in _pairs(query, requested, value):
                if partition not in assignment.compute:
                    continue
                self._attempt.stage(partition, frame)
                done = done | PartitionSet.of(catalogue, [partition])
                rows += len(frame)
                if len(done) % GROUP_FILES == 0:
                    self._attempt.publish(replace=replace)
        finally:  # what came whole before a failure is committed
            self._attempt.publish(replace=replace)
        _check_complete(assignment.compute - done)
        if (refusal := assignment.refusal()) is not None:
            raise PartitionsRefusedError(refusal)
        context.add_output_metadata({"committed": len(done), "rows": rows})


def partition_io_manager(project: Project) -> dg.IOManagerDefinition:
    """Return the IO manager as a Dagster resource: one attempt for as long as a process runs."""

    def resource(context: dg.InitResourceContext) -> Iterator[PartitionIOManager]:
        project.store.sweep()
        tags = context.run.tags if context.run else {}
        run_id = context.run.run_id if context.run else "outside-a-run"
        with project.store.attempt(run_id) as attempt, project.claims(run_id) as claims:
            yield PartitionIOManager(project, attempt, tags, claims)

    return dg.IOManagerDefinition(
        resource_fn=resource,  # type: ignore[arg-type]  # generators work; the type omits them
        description="Commits partitions as files, and loads them again.",
    )


def note_failures(claims: RunClaims, stream: PartitionStream) -> None:
    """Write down what a stream could not commit, so that it backs off, one by one."""
    if stream.failed:
        claims.fail(stream.failed, next(iter(stream.failures.values())))
    if stream.waiting:
        claims.put_off(stream.waiting, SourceNotReadyError("the source is not ready"))


def wants_replacement(tags: Mapping[str, str]) -> bool:
    """Return whether a run computes committed partitions again.

    Raises:
        SourceError: the tag says neither ``skip`` nor ``replace``.
    """
    choice = tags.get(ON_COMMITTED_TAG, "skip")
    if choice not in {"skip", REPLACE, REPLACE_STALE}:
        message = f"tag {ON_COMMITTED_TAG} is {choice!r}; give 'skip' or 'replace'"
        raise SourceError(message)
    return choice != "skip"


def committed_partition(
    project: Project,
    partition: Partition,
    metadata: Mapping[str, str | int],
    digest: str,
) -> CommittedPartition:
    """Return what Dagster is told about one committed partition."""
    path = dg.MetadataValue.path(project.store.location(partition))
    return CommittedPartition(
        partition_key=partition.key, data_version=digest, metadata={**metadata, "path": path}
    )


def committed_group(query: Query, partitions: Sequence[CommittedPartition]) -> CommittedGroup:
    """Return what Dagster is told about partitions of one asset."""
    return CommittedGroup(
        asset_key=asset_key(query), code_version=str(query.version), partitions=partitions
    )


def _report_not_expected(context: dg.OutputContext, stream: PartitionStream) -> None:
    """Tell Dagster once that these will never come, so that a backfill over them can end."""
    for query in stream.queries:
        partitions = [
            CommittedPartition(
                partition_key=p.key,
                data_version="not-expected",
                metadata={
                    "state": "not expected",
                    "why": stream.assignment.plan.explain(p)[1],
                    "rows": 0,
                },
            )
            for p in stream.assignment.not_expected.only([query])
        ]
        if partitions:
            report_in_run(context, committed_group(query, partitions))


def _outcome(stream: PartitionStream) -> dict[str, str | int]:
    """Return what a stream did, for the run's page."""
    outcome: dict[str, str | int] = {
        "committed": len(stream.committed),
        "committed_before": len(stream.stood),
        "left": len(stream.left),
    }
    if stream.stopped_by is not None:
        outcome["stopped_by"] = stream.stopped_by
    if stream.waiting:
        outcome["waiting_for_source"] = len(stream.waiting)
    if stream.busy:
        outcome["in_other_runs"] = len(stream.busy)
    if stream.failures:
        outcome["failed_days"] = len(stream.failures)
    return outcome


def _pairs(
    query: Query, requested: PartitionSet, value: object
) -> Iterator[tuple[Partition, pd.DataFrame | pa.Table]]:
    """Yield partitions and frames of an asset's own value."""
    catalogue = requested.catalogue
    if isinstance(value, pa.Table) or is_data_frame(value):
        if len(requested) != 1:
            message = (
                f"asset {'/'.join(query.asset_path)} returned one frame for {len(requested)} "
                "partitions; return a mapping of partition keys to frames, or yield such pairs"
            )
            raise SourceError(message)
        yield next(iter(requested)), value
        return
    items = value.items() if isinstance(value, Mapping) else value
    if not isinstance(items, Iterable):
        message = (
            f"asset {'/'.join(query.asset_path)} returned a {type(value).__name__}; return a "
            "frame, a mapping of partition keys to frames, or an iterator of such pairs"
        )
        raise SourceError(message)
    for key, frame in items:
        partition = catalogue.partition_of(query, key)
        if partition not in requested:
            message = f"asset {'/'.join(query.asset_path)} gave {key}, which was not asked for"
            raise SourceError(message)
        yield partition, frame


def _check_complete(left: PartitionSet) -> None:
    if left:
        names = ", ".join(p.key for p in list(left)[:5])
        message = f"{len(left)} partitions were asked for and not given: {names}"
        raise SourceError(message)
