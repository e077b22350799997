"""One tick of the sensor: scan, plan, subtract what is in flight, request runs, say why not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.resources.abandoned_runs import fail_abandoned_runs, unfinished_runs
from backfill_assets.resources.cancelled_runs import PAUSE, paused_partitions
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.event_log import event_log_mark
from backfill_assets.resources.log_drift import end_dead_runs
from backfill_assets.resources.reconciliation import report, unreported_partitions
from backfill_assets.resources.run_requests import (
    PRIORITY_TAG,
    SENSOR_TAG,
    coverage_job_name,
    in_flight,
    run_request,
)
from backfill_assets.stores.publishing_log import backing_off

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.cycles import Cycle
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.publishing_log import Failure

REPORT_SLICE = 2_000  # partitions told to Dagster in one tick, about 1 ms each; a tick has 60 s
NEWEST_RUNS = 20  # unfinished ones; 0.4 s each to submit, and a tick that outlives 60 s is lost
NEWEST_PRIORITY = 10  # overtakes a queue of history, and of runs that people launched
HISTORY_PRIORITY = -10  # a person who waits goes before history
RESTATING_PRIORITY = -20  # what is missing goes before what is stale


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tick tells the next one; every tick is right without it.

    Attributes:
        newest_day: The newest closed day when its runs were last requested.
        reported: What stood committed, and in which event log, when all of it was reported.
        looked: What was so when the coverage was last looked at.
    """

    newest_day: str = ""
    reported: str = ""
    looked: str = ""

    @classmethod
    def parse(cls, cursor: str | None) -> Hints:
        """Read a cursor; one that is not ours is no hint."""
        try:
            return cls(**json.loads(cursor or "{}"))
        except (ValueError, TypeError):
            return cls()


class Tick:
    """One evaluation of the sensor of a catalogue."""

    def __init__(
        self,
        project: Project,
        catalogue: Catalogue,
        instance: dg.DagsterInstance,
        log: logging.Logger,
    ) -> None:
        self._project = project
        self._catalogue = catalogue
        self._instance = instance
        self._log = log
        self.is_idle = False  # once evaluated: all stands, and all of it was reported

    def evaluate(self, cursor: str | None) -> dg.SensorResult:
        """Return the runs to launch, or why none is launched.

        Raises:
            StoreUnreadableError: the store cannot be read; nothing is counted as missing.
        """
        hints = Hints.parse(cursor)
        # Before the scan: what a run commits and ends in between is seen as committed.
        runs = self._unfinished()
        failures = self._project.failures(self._catalogue)
        now = RealClock().now()
        paused = paused_partitions(self._instance, self._catalogue, now)
        plan = self._project.plan(
            self._catalogue,
            in_flight=in_flight(self._catalogue, runs),
            backing_off=backing_off(self._catalogue, failures, now) | paused,
            looks_for_changes=True,
        )
        self._look_at(failures, plan)
        waits = self._why_source_waits(plan)
        cycles = [] if waits else self._cycles_to_launch(plan, runs, hints)
        requests = [self._request(cycle, plan.latest_closed_day) for cycle in cycles]
        if not cycles and not plan.work and not waits:
            requests += self._restating_requests(plan, runs)
        if any(_is_newest(cycle, plan.latest_closed_day) for cycle in cycles):
            hints = replace(hints, newest_day=plan.latest_closed_day.isoformat())
        if not runs:
            hints = self._report_unreported(plan, hints)
            # What waits for its source has nothing new to show, and the others get the cores.
            if not requests and not waits:
                hints = self._look_at_coverage(plan, hints, requests)
        busy = requests or runs or plan.missing or plan.restating
        self.is_idle = not busy and hints.reported != ""
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None
            if requests
            else dg.SkipReason(waits or why_nothing(plan, runs, failures)),
            cursor=json.dumps(asdict(hints)),
        )

    def _why_source_waits(self, plan: Plan) -> str | None:
        """Return why no run is launched though there is work, or None: a run would only wait."""
        if not plan.work and not plan.restating:
            return None
        reason = self._project.why_not_ready(self._catalogue)
        left = len(plan.work) + len(plan.restating)
        return reason and f"{left} partitions wait for their source: {reason}"

    def _look_at(self, failures: Sequence[Failure], plan: Plan) -> None:
        """Forget what is over, and raise the alert for failures that need a person."""
        if self._project.publishing_log is not None:
            stands = plan.committed - plan.restating
            over = [f.partition for f in failures if f.partition in stands]
            self._project.publishing_log.forget(over)
            self._end_dead_runs(stands)
        for failure in failures:
            if failure.needs_a_person and failure.partition in plan.missing:
                self._log.error(
                    "%s failed %s times and goes on being tried: %s",
                    failure.partition,
                    failure.attempts,
                    failure.error,
                )

    def _end_dead_runs(self, stands: PartitionSet) -> None:
        """Have the log say that partitions stand, where it has dead runs at work on them."""
        if over := end_dead_runs(self._project, stands):
            self._log.warning(
                "The log had runs that are dead at work on %s partitions whose files stand, such "
                "as %s: they were killed, or the log was restored from a backup. It says now that "
                "these stand.",
                len(over),
                over[0],
            )

    def _look_at_coverage(self, plan: Plan, hints: Hints, requests: list[dg.RunRequest]) -> Hints:
        """Have the coverage looked at once when the files have changed and all is quiet."""
        state = _fingerprint(plan.committed | plan.held, self._instance)
        if state == hints.looked or hints.reported == "":
            return hints
        requests.append(dg.RunRequest(job_name=coverage_job_name(self._catalogue)))
        return replace(hints, looked=state)

    def _unfinished(self) -> list[dg.DagsterRun]:
        records = unfinished_runs(self._instance, [self._catalogue])
        failed = fail_abandoned_runs(self._instance, self._project, records, now=RealClock().now())
        for run_id in failed:
            self._log.warning("Run %s was killed; its work is missing again.", run_id)
        return [r.dagster_run for r in records if r.dagster_run.run_id not in failed]

    def _cycles_to_launch(
        self, plan: Plan, runs: Sequence[dg.DagsterRun], hints: Hints
    ) -> list[Cycle]:
        """Return the newest day's cycles, and history's as far as there is room for its runs."""
        ours = [run.tags for run in runs if SENSOR_TAG in run.tags]
        urgent = sum(1 for tags in ours if tags.get(PRIORITY_TAG) == str(NEWEST_PRIORITY))
        newest: list[Cycle] = []
        history: list[Cycle] = []
        for cycle in plan.cycles(self._project.bounds):
            if _is_newest(cycle, plan.latest_closed_day):
                # A small bound, or failures of every other unit, make many runs of one day.
                if urgent + len(newest) >= NEWEST_RUNS:
                    break
                newest.append(cycle)
            elif len(ours) + len(history) < self._project.runs_in_flight:
                history.append(cycle)
            else:
                break
        # Its first runs get the machine to themselves for a tick; and for one tick only, or a
        # newest day that keeps failing would keep history from being filled.
        if newest and hints.newest_day != plan.latest_closed_day.isoformat():
            return newest
        return newest + history

    def _request(self, cycle: Cycle, newest: date) -> dg.RunRequest:
        priority = NEWEST_PRIORITY if _is_newest(cycle, newest) else HISTORY_PRIORITY
        return run_request(self._catalogue, cycle, priority=priority)

    def _restating_requests(self, plan: Plan, runs: Sequence[dg.DagsterRun]) -> list[dg.RunRequest]:
        """Have stale partitions made again: after missing work, newest first, bounded."""
        room = self._project.runs_in_flight - len(runs)
        cycles = islice(plan.restating_cycles(self._project.bounds), max(room, 0))
        return [
            run_request(self._catalogue, cycle, priority=RESTATING_PRIORITY, restates=True)
            for cycle in cycles
        ]

    def _report_unreported(self, plan: Plan, hints: Hints) -> Hints:
        """Tell Dagster about a slice of what stands committed and was never reported.

        Only while no run is unfinished: each reports what it commits itself.
        """
        state = _fingerprint(plan.committed, self._instance)
        if state == hints.reported:
            return hints
        unreported = unreported_partitions(self._instance, plan.committed)
        count = report(self._project, self._instance, unreported, self._log, limit=REPORT_SLICE)
        left = len(unreported) - count
        if count:
            self._log.info("Reported %s committed partitions; %s to go.", count, left)
        return replace(hints, reported="" if left else state)


def why_nothing(plan: Plan, runs: Sequence[dg.DagsterRun], failures: Sequence[Failure] = ()) -> str:
    """Return in plain words why a tick launches nothing."""
    if plan.missing:
        return "; ".join(_why_missing(plan, runs, failures)) + "."
    if not plan.expected:
        return _why_nothing_is_expected(plan)
    held = f" {len(plan.held)} are held." if plan.held else ""
    return (
        f"Nothing is missing: {len(plan.committed)} of {len(plan.expected)} expected partitions "
        f"are committed, up to {plan.latest_closed_day}.{held}"
    )


def _why_nothing_is_expected(plan: Plan) -> str:
    name, closing = plan.catalogue.name, plan.catalogue.closing
    first_day = plan.catalogue.first_open_day(plan.now)
    if plan.latest_closed_day < plan.catalogue.first_day and first_day is not None:
        closes_at = closing.closes_at(first_day)
        return f"No day of {name} has closed yet; the first one closes at {closes_at}."
    return (
        f"Nothing of {name} is expected up to {plan.latest_closed_day}, the latest closed day: no "
        "unit is open on a day on which a query has begun."
    )


def _why_missing(
    plan: Plan, runs: Sequence[dg.DagsterRun], failures: Sequence[Failure]
) -> list[str]:
    parts = []
    in_flight, waiting = plan.in_flight & plan.missing, plan.backing_off & plan.missing
    if plan.work:
        parts.append(f"{len(plan.work)} missing partitions wait for a place")
    if in_flight:
        parts.append(f"{len(in_flight)} missing partitions are in {len(runs)} unfinished runs")
    failed = [f for f in failures if f.partition in waiting]
    if failed:
        retry_at = min(f.retry_at for f in failed)
        parts.append(
            f"{len(failed)} missing partitions failed lately and back off; the next attempt is "
            f"after {retry_at:%Y-%m-%d %H:%M:%S %Z}"
        )
    paused = len(waiting) - len(failed)
    if paused:
        parts.append(
            f"{paused} missing partitions are of runs that were cancelled less than "
            f"{PAUSE.seconds // 60} minutes ago; hold them to stop them for good"
        )
    return parts


def _is_newest(cycle: Cycle, newest: date) -> bool:
    return cycle.last_day == newest and cycle.first_day == newest


def _fingerprint(committed: PartitionSet, instance: dg.DagsterInstance) -> str:
    """Return a short text that changes when the files or Dagster's memory of them do."""
    mark = event_log_mark(instance)
    masks = sorted((name, sorted(days.items())) for name, days in committed.masks.items())
    return hashlib.sha256(repr((mark, masks)).encode()).hexdigest()
