"""The data sets of a project, its store and its clock: one value, built once and passed along."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backfill_assets.core.assignment import assign
from backfill_assets.core.closing import ONE_DAY
from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets.core.source import FingerprintedSource, WaitingSource
from backfill_assets.resources.clock import RealClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from backfill_assets.core.assignment import Assignment
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Query
    from backfill_assets.core.plan import Plan
    from backfill_assets.core.source import Source
    from backfill_assets.core.store import PartitionStore
    from backfill_assets.resources.clock import Clock
    from backfill_assets.resources.release_desk import ReleaseDesk
    from backfill_assets.resources.saga_desk import SagaDesk
    from backfill_assets.stores.publishing_log import Failure, PublishingLog, RunClaims


@dataclass(frozen=True, slots=True)
class DataSet:
    """A catalogue, and the source that its rows come from.

    Attributes:
        load: Puts the source's data in place where it is not; cheap when it is. None where the
            source is somebody else's.
    """

    catalogue: Catalogue
    source: Source[Any]
    load: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Everything that the definitions, the sensor and the command line work with.

    Attributes:
        publishing_log: The attempts at partitions, or None where none are written down.
        runs_in_flight: How many history runs of the sensor may be unfinished at once.
        tick_seconds: The least time between two ticks of the sensor.
        saga_desk: Its sagas and alerts, or None where it has none.
        release_desk: How its days are released, or None where they are not.
    """

    data_sets: Sequence[DataSet]
    store: PartitionStore[Any]
    clock: Clock
    publishing_log: PublishingLog | None = None
    bounds: Bounds = field(default_factory=Bounds)
    runs_in_flight: int = 2
    tick_seconds: int = 4
    saga_desk: SagaDesk | None = None
    release_desk: ReleaseDesk | None = None

    @property
    def catalogues(self) -> list[Catalogue]:
        """The catalogue of each data set."""
        return [data_set.catalogue for data_set in self.data_sets]

    def failures(self, catalogue: Catalogue) -> list[Failure]:
        """Return what is remembered of failed partitions of a catalogue."""
        return self.publishing_log.failures(catalogue) if self.publishing_log else []

    def why_not_ready(self, catalogue: Catalogue) -> str | None:
        """Return why a source says that nothing of it can be read now, or None."""
        source = self._source_of(catalogue)
        return source.why_not_ready() if isinstance(source, WaitingSource) else None

    def seconds_left(self, plan: Plan) -> float | None:
        """Return an estimate of when nothing will be missing, or None where nothing goes on."""
        if not plan.missing:
            return 0.0
        rate = self.store.commit_rate(plan.committed, RealClock().now())
        return len(plan.missing) / rate if rate else None

    @contextmanager
    def claims(self, run_id: str) -> Iterator[RunClaims | None]:
        """Open the claims of a run; what it neither publishes nor fails is given back."""
        if self.publishing_log is None:
            yield None
            return
        claims = self.publishing_log.of_run(run_id, self.store)
        try:
            yield claims
        finally:
            claims.close()

    def end_run(self, run_id: str) -> None:
        """End a run that is known to be dead: it publishes nothing more, also if it is not."""
        self.store.revoke(run_id)
        if self.publishing_log is not None:
            self.publishing_log.end_run(run_id)

    def query_of(self, asset_path: Sequence[str]) -> Query:
        """Return the query behind a Dagster asset.

        Raises:
            UnknownPartitionError: the asset is no query of any catalogue.
        """
        for catalogue in self.catalogues:
            for query in catalogue.queries:
                if query.asset_path == tuple(asset_path):
                    return query
        message = (
            f"asset {'/'.join(asset_path)} is no query of "
            f"{', '.join(c.name for c in self.catalogues)}: the partition IO manager keeps "
            "partitions of catalogues only"
        )
        raise UnknownPartitionError(message)

    def catalogue_of(self, query: Query) -> Catalogue:
        """Return the catalogue that a query belongs to."""
        return next(c for c in self.catalogues if c.name == query.catalogue)

    def plan(
        self,
        catalogue: Catalogue,
        *,
        in_flight: PartitionSet | None = None,
        backing_off: PartitionSet | None = None,
        within: PartitionSet | None = None,
        now: datetime | None = None,
        looks_for_changes: bool = False,
    ) -> Plan:
        """Scan the store, and return every partition's state.

        Args:
            looks_for_changes: Ask the source whether days in the look-back have changed.
            within: Look only at the queries and days of this set; only of these is the plan true.
            now: An aware instant; by this project's clock where it is None.
        """
        at = now or self.clock.now()
        inventory = self.store.scan(catalogue, within=within)
        changed = None
        if looks_for_changes:
            changed = self._changed(catalogue, inventory.committed, at)
        return make_plan(
            catalogue,
            present=inventory.committed,
            held=inventory.held,
            in_flight=in_flight or PartitionSet.empty(catalogue),
            now=at,
            backing_off=backing_off,
            wished=inventory.restating,
            changed=changed,
        )

    def assignment(
        self, requested: PartitionSet, *, replace: bool, stale_only: bool = False
    ) -> Assignment:
        """Return what a run does with the partitions that it was asked for."""
        plan = self.plan(requested.catalogue, within=requested, looks_for_changes=stale_only)
        return assign(plan, requested, replace=replace, stale_only=stale_only)

    def _source_of(self, catalogue: Catalogue) -> Source[Any]:
        return next(d.source for d in self.data_sets if d.catalogue is catalogue)

    def _changed(
        self, catalogue: Catalogue, committed: PartitionSet, now: datetime
    ) -> PartitionSet:
        """Return the committed partitions of which the source says something else by now."""
        source = self._source_of(catalogue)
        if not catalogue.look_back_days or not isinstance(source, FingerprintedSource):
            return PartitionSet.empty(catalogue)
        newest = catalogue.latest_closed_day(now)
        days = list(catalogue.days(newest - (catalogue.look_back_days - 1) * ONE_DAY, newest))
        says = source.fingerprints(days)
        recent = committed & PartitionSet.rectangle(catalogue, catalogue.queries, days, -1)
        recorded = self.store.source_fingerprints(recent)
        # A record without one was made before the source had any: nothing is known to have changed.
        changed = (p for p, f in recorded.items() if f is not None and f != says.get(p.day))
        return PartitionSet.of(catalogue, changed)
