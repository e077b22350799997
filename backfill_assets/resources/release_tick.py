"""One tick of the sensor that releases days: only while nothing is being filled, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.core.releases import HoldDay, ReleaseKey
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.resources.abandoned_runs import fail_abandoned_runs, unfinished_runs
from backfill_assets.resources.cancelled_runs import paused_partitions
from backfill_assets.resources.run_requests import PRIORITY_TAG, UNFINISHED
from backfill_assets.stores.publishing_log import backing_off

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.releases import Releasing

RELEASE_JOB = "release_days"
RELEASE_OP = "release_each"  # names of ops are unique in a repository
CATALOGUE_TAG = "backfill_assets/releases"  # carried by the sensor's runs: of which catalogue

DAYS_PER_RUN = 100  # about ten seconds of work; a newly closed day waits no longer
HOLDS_PER_TICK = 10  # each is a few files; a tick has 60 s
# Whatever keeps a few releases from being finished, most likely a subscriber, would keep all.
UNFINISHED_BEFORE_STOPPING = 3
UNFINISHED_STATUSES = tuple(status for status in SagaStatus if status.is_moving)
PRIORITY = -15  # after missing partitions, before what is to be made again
# Looking for files that were made again reads the end of each: 3 s for a year of flights.
LOOK_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ReleaseTick:
    """One evaluation of the sensor of a catalogue."""

    releasing: Releasing
    catalogue: Catalogue
    instance: dg.DagsterInstance
    log: logging.Logger

    def evaluate(self, cursor: str | None) -> dg.SensorResult:
        """Return the run that releases the next days, or why there is none.

        Args:
            cursor: When released files were looked at last; a hint only.

        Raises:
            StoreUnreadableError: the store cannot be read.
            PostgresError: the log database cannot be reached.
        """
        if why := self._why_not_now():
            return _skipped(why, cursor)
        plan = self._plan()
        if plan.work:
            return _skipped(f"{len(plan.work)} missing partitions go first.", cursor)
        keys = self._next_keys(plan)
        if not keys and self._is_time_to_look(cursor):
            keys = self.releasing.made_again(plan)[:DAYS_PER_RUN]
            cursor = self.releasing.clock().isoformat()
        if not keys:
            return _skipped("Every complete day is released, waits, or is held.", cursor)
        return dg.SensorResult(run_requests=[release_request(self.catalogue, keys)], cursor=cursor)

    def _why_not_now(self) -> str | None:
        if unfinished_runs(self.instance, [self.catalogue]):
            return "Runs over partitions have not ended; releasing does not slow them down."
        running = self._running()
        return f"Run {running[0]} releases days." if running else None

    def _running(self) -> list[str]:
        """Return the runs that release days; those that are dead are reported failed."""
        chosen = dg.RunsFilter(
            job_name=RELEASE_JOB,
            tags={CATALOGUE_TAG: self.catalogue.name},
            statuses=list(UNFINISHED),
        )
        records = self.instance.get_run_records(chosen)
        now = self.releasing.clock()
        project = self.releasing.project
        dead = set(fail_abandoned_runs(self.instance, project, records, now=now))
        return [r.dagster_run.run_id for r in records if r.dagster_run.run_id not in dead]

    def _plan(self) -> Plan:
        project, now = self.releasing.project, self.releasing.clock()
        waiting = backing_off(self.catalogue, project.failures(self.catalogue), now)
        paused = paused_partitions(self.instance, self.catalogue, now)
        return project.plan(self.catalogue, backing_off=waiting | paused)

    def _next_keys(self, plan: Plan) -> list[ReleaseKey]:
        """Return the releases to start; hold the days that were taken back too often."""
        keys: list[ReleaseKey] = []
        holds = 0
        for step in self.releasing.next_steps(plan):
            if isinstance(step, HoldDay) and holds < HOLDS_PER_TICK:
                holds += 1
                self._hold(step)
            elif not isinstance(step, HoldDay) and len(keys) < DAYS_PER_RUN:
                keys.append(step.key)
        return keys

    def _hold(self, step: HoldDay) -> None:
        try:
            self.releasing.hold_day(step)
        except BackfillAssetsError as error:  # the next tick tries again; other days go on
            self.log.error("%s cannot be held: %s", step.key, error)
        else:
            self.log.error("%s %s is held: %s", step.key.catalogue, step.key.day, step.reason)

    def _is_time_to_look(self, cursor: str | None) -> bool:
        try:
            looked_at = datetime.fromisoformat(cursor or "")
        except ValueError:
            return True
        is_aware = looked_at.tzinfo is not None
        return not is_aware or self.releasing.clock() - looked_at.astimezone(UTC) >= LOOK_AFTER


def release_request(catalogue: Catalogue, keys: Sequence[ReleaseKey]) -> dg.RunRequest:
    """Return the request for one run that releases days, in this order."""
    config = {"releases": [str(key) for key in keys]}
    days = [key.day for key in keys]
    return dg.RunRequest(
        job_name=RELEASE_JOB,
        run_config={"ops": {RELEASE_OP: {"config": config}}},
        tags={
            CATALOGUE_TAG: catalogue.name,
            PRIORITY_TAG: str(PRIORITY),
            "backfill_assets/days": f"{len(days)} days, {max(days)} back to {min(days)}",
        },
    )


def release_days(releasing: Releasing, texts: Sequence[str], log: logging.Logger) -> dict[str, str]:
    """Release days one after the other; return where each stands by now.

    One that cannot be released keeps no other from being. Killed, it leaves each day released, on
    its way (the supervisor of sagas goes on), or to be asked for again.

    Raises:
        PostgresError: the log database is lost.
    """
    stands: dict[str, str] = {}
    for text in texts:
        if sum(status in UNFINISHED_STATUSES for status in stands.values()) >= (
            UNFINISHED_BEFORE_STOPPING
        ):
            log.warning("Several releases could not be finished; the next run goes on.")
            break
        key = ReleaseKey.parse(text)
        if key is None:
            stands[text] = "no release is called so; give CATALOGUE/YYYY-MM-DD"
            continue
        try:
            saga = releasing.release(key, who="release_days")
        except BackfillAssetsError as error:
            stands[text] = str(error)
            log.warning("%s: %s", text, error)
            continue
        stands[text] = str(saga.status)
    return stands


def _skipped(why: str, cursor: str | None) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=cursor)
