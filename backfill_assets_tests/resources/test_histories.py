"""Random histories: whatever happens to a store, it ends complete, and nothing is lost on the way.

The store, the plan, the cycles and the streams are the real ones; a kill is an error at a random
call of the operating system, after which a new process begins with new objects.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from backfill_assets.core.catalogue import Catalogue, Category, Unit, ValueType
from backfill_assets.core.cycles import Bounds, Cycle
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.partition_stream import PartitionStream
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.publishing_log import PublishingLog

from .small_project import NOW, Shops, a_catalogue

if TYPE_CHECKING:
    from backfill_assets.core.partition_sets import PartitionSet

UNITS = ("Paris", "Lyon", "Nice")
VALUE_TYPES = ("sold", "revenue")
CALLS_OF_A_RUN = 60  # of a few files; a kill after more is no kill
MEMORY = Path("/dev/shm")  # noqa: S108 - a disk would only be slower


class KilledError(BaseException):
    """The process ends here; nothing may catch it and go on."""


class Killer:
    """Ends the process at the n-th call that changes the disk."""

    CALLS = ("link", "unlink", "mkdir", "open", "write")

    def __init__(self, patch: pytest.MonkeyPatch, calls: int) -> None:
        self.left = calls
        for name in self.CALLS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise KilledError
            return real(*arguments, **named)

        return call


class Histories(RuleBasedStateMachine):
    """One store over days in which everything happens to it."""

    log: PublishingLog | None = None
    runs = 0

    @initialize()
    def begin(self) -> None:
        parent = str(MEMORY) if MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(dir=parent))
        self.now = NOW - timedelta(days=4)
        self.units = list(UNITS[:2])
        self.value_types = list(VALUE_TYPES[:1])
        self.source = Shops()
        self.known: dict[str, str] = {}  # digest of each partition that was seen committed
        self.restart()
        self.project.store.prepare()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self._end_complete()
            shutil.rmtree(self.folder)

    @property
    def catalogue(self) -> Catalogue:
        return self.project.catalogues[0]

    @rule()
    def restart(self) -> None:
        """Begin a new process: it remembers nothing."""
        catalogue = a_catalogue(
            units=[Unit(name) for name in self.units],
            categories=[Category("article")],
            value_types=[ValueType(name) for name in self.value_types],
        )
        self.project = Project(
            data_sets=[DataSet(catalogue, self.source)],
            store=LocalPartitionStore(self.folder / "store", [catalogue]),
            clock=FixedClock(self.now),
        )

    @rule(days=st.integers(0, 3))
    def time_passes(self, days: int) -> None:
        self.now += timedelta(days=days)
        self.restart()

    @rule(units=st.sets(st.sampled_from(UNITS), min_size=1))
    def units_change(self, units: set[str]) -> None:
        self.units = [unit for unit in UNITS if unit in units]
        self.restart()

    @rule(value_types=st.sets(st.sampled_from(VALUE_TYPES), min_size=1))
    def queries_change(self, value_types: set[str]) -> None:
        self.value_types = [name for name in VALUE_TYPES if name in value_types]
        self.restart()

    @rule(days=st.integers(1, 3), partitions=st.integers(1, 5), cycles=st.integers(1, 3))
    def tick(self, days: int, partitions: int, cycles: int) -> None:
        """Launch the first cycles of a plan, bounded, and let them end."""
        plan = self.project.plan(self.catalogue)
        bounds = Bounds(max_days=days, max_partitions=partitions)
        for _, cycle in zip(range(cycles), plan.cycles(bounds), strict=False):
            self._run(cycle, stale_only=False)

    @rule(calls=st.integers(1, CALLS_OF_A_RUN))
    def a_run_is_killed(self, calls: int) -> None:
        plan = self.project.plan(self.catalogue)
        cycle = next(plan.cycles(Bounds()), None) or next(plan.restating_cycles(Bounds()), None)
        if cycle is None:
            return
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, calls)
            with contextlib.suppress(KilledError):
                self._run(cycle, stale_only=bool(plan.restating))
        self.restart()

    @rule(data=st.data())
    def files_are_deleted(self, data: st.DataObject) -> None:
        committed = list(self.project.plan(self.catalogue).committed)
        if committed:
            for partition in data.draw(st.sets(st.sampled_from(committed), max_size=4)):
                Path(self.project.store.location(partition)).unlink()
                self.known.pop(str(partition), None)

    @rule(data=st.data())
    def some_are_held(self, data: st.DataObject) -> None:
        expected = list(self.project.plan(self.catalogue).expected)
        if expected:
            chosen = list(data.draw(st.sets(st.sampled_from(expected), max_size=3)))
            self.project.store.hold(chosen, "a history")
            for partition in chosen:
                self.known.pop(str(partition), None)

    @rule(data=st.data())
    def some_are_released(self, data: st.DataObject) -> None:
        held = list(self.project.plan(self.catalogue).held)
        if held:
            self.project.store.release(list(data.draw(st.sets(st.sampled_from(held)))))

    @rule(factor=st.integers(1, 3), data=st.data())
    def some_are_restated(self, factor: int, data: st.DataObject) -> None:
        """Ask for other content of some; only these may change."""
        committed = list(self.project.plan(self.catalogue).committed)
        if committed:
            chosen = list(data.draw(st.sets(st.sampled_from(committed), max_size=3)))
            self.source.factor = factor
            self.project.store.ask_to_restate(chosen)

    @rule()
    def what_is_stale_is_made_again(self) -> None:
        for cycle in self.project.plan(self.catalogue).restating_cycles(Bounds(max_days=2)):
            self._run(cycle, stale_only=True)

    @rule()
    def dead_attempts_are_swept(self) -> None:
        self.project.store.sweep()

    @invariant()
    def nothing_is_lost_and_nothing_changes_by_itself(self) -> None:
        if not hasattr(self, "project"):
            return
        plan = self.project.plan(self.catalogue)
        digests = self._digests(plan.committed)
        restating = {str(partition) for partition in plan.restating}
        for name, digest in self.known.items():
            if name in digests and name not in restating:
                assert digests[name] == digest, f"{name} changed by itself"
        mine = {name for name in self.known if self._is_expected(name)}
        assert mine <= digests.keys(), f"lost: {mine - digests.keys()}"
        self.known |= digests

    def _run(self, cycle: Cycle, *, stale_only: bool) -> None:
        """Do what a run does with the rectangle of a cycle."""
        restating = self.project.plan(self.catalogue).restating if stale_only else ()
        wished = {str(partition) for partition in restating}
        stream = PartitionStream(
            assignment=self.project.assignment(
                cycle.rectangle(), replace=stale_only, stale_only=stale_only
            ),
            queries=cycle.queries,
            source=self.source,
            bounds=Bounds(),
            asked_by_person=False,
        )
        self.runs += 1
        run_id = f"run-{self.runs:06}"
        with self.project.store.attempt(run_id) as attempt:
            if self.log is not None:
                stream.claims = self.log.of_run(run_id, self.project.store)
            for group in stream.groups():
                for partition, table in group:
                    attempt.stage(partition, table)
                published = attempt.publish(replace=stale_only)
                stream.note_committed([file.partition for file in published])
                if stream.claims is not None:
                    stream.claims.complete({f.partition: f.record.digest for f in published})
                for file in published:
                    if str(file.partition) in wished:
                        self.known[str(file.partition)] = file.record.digest
            if stream.claims is not None:
                stream.claims.close()  # a run that is killed does not come here
        stream.finish()
        assert not stream.busy, "a dead run keeps its work"

    def _digests(self, committed: PartitionSet) -> dict[str, str]:
        return {str(p): self.project.store.verify(p).digest for p in committed}

    def _is_expected(self, name: str) -> bool:
        _, _, value_type, _, unit = name.split("/")
        day = date.fromisoformat(name.split("/")[3])
        closed = day <= self.catalogue.latest_closed_day(self.now)
        return value_type in self.value_types and unit in self.units and closed

    def _end_complete(self) -> None:
        """Left alone, the store becomes complete, and only what is held stays away."""
        self.restart()
        for cycle in self.project.plan(self.catalogue).cycles(Bounds(max_days=2)):
            self._run(cycle, stale_only=False)
        plan = self.project.plan(self.catalogue)
        assert not plan.missing
        assert len(plan.committed) + len(plan.held) == len(plan.expected)
        self._digests(plan.committed)


HISTORIES = settings(
    max_examples=500,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestHistories = Histories.TestCase
TestHistories.settings = HISTORIES


# A process that is killed closes no connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_histories_under_the_log_which_is_lost_now_and_then(database: str) -> None:
    class Logged(Histories):
        log = PublishingLog(lambda: database, lambda: datetime.now(UTC))

        @rule()
        def the_log_is_lost(self) -> None:
            with psycopg.connect(database) as connection:
                connection.execute("TRUNCATE idempotency_log, idempotency_attempt")

        def teardown(self) -> None:
            super().teardown()
            self.the_log_is_lost()  # the next history has a store of its own

    assert Logged.log.failures(a_catalogue()) == []  # its tables are made when they are asked
    run_state_machine_as_test(Logged, settings=settings(HISTORIES, max_examples=40))
