"""One tick of the sensor: scan, plan, subtract what is in flight, request runs, say why not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.resources.abandoned_runs import fail_abandoned_runs, unfinished_runs
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.event_log import event_log_mark
from backfill_assets.resources.reconciliation import report, unreported_partitions
from backfill_assets.resources.run_requests import SENSOR_TAG, in_flight, run_request

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence
    from datetime import date

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.cycles import Cycle
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.plan import Plan
    from backfill_assets.resources.project import Project

REPORT_SLICE = 2_000  # partitions told to Dagster in one tick, about 1 ms each; a tick has 60 s
NEWEST_PRIORITY = 10  # overtakes a queue of history, and of runs that people launched
HISTORY_PRIORITY = -10  # a person who waits goes before history


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tick tells the next one; every tick is right without it.

    Attributes:
        newest_day: The newest closed day when its runs were last requested.
        reported: What stood committed, and in which event log, when all of it was reported.
    """

    newest_day: str = ""
    reported: str = ""

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

    def evaluate(self, cursor: str | None) -> dg.SensorResult:
        """Return the runs to launch, or why none is launched.

        Raises:
            StoreUnreadableError: the store cannot be read; nothing is counted as missing.
        """
        hints = Hints.parse(cursor)
        # Before the scan: what a run commits and ends in between is seen as committed.
        runs = self._unfinished()
        plan = self._project.plan(self._catalogue, in_flight=in_flight(self._catalogue, runs))
        cycles = self._cycles_to_launch(plan, runs, hints)
        hints = self._report_unreported(plan, runs, hints)
        if any(_is_newest(cycle, plan.latest_closed_day) for cycle in cycles):
            hints = Hints(plan.latest_closed_day.isoformat(), hints.reported)
        return dg.SensorResult(
            run_requests=[self._request(cycle, plan.latest_closed_day) for cycle in cycles],
            skip_reason=None if cycles else dg.SkipReason(why_nothing(plan, runs)),
            cursor=json.dumps(asdict(hints)),
        )

    def _unfinished(self) -> list[dg.DagsterRun]:
        self._project.store.prepare()
        records = unfinished_runs(self._instance, [self._catalogue])
        failed = fail_abandoned_runs(
            self._instance, self._project.store, records, now=RealClock().now()
        )
        for run_id in failed:
            self._log.warning("Run %s was killed; its work is missing again.", run_id)
        return [r.dagster_run for r in records if r.dagster_run.run_id not in failed]

    def _cycles_to_launch(
        self, plan: Plan, runs: Sequence[dg.DagsterRun], hints: Hints
    ) -> list[Cycle]:
        """Return the newest day's cycles, and history's as far as there is room for its runs."""
        ours = sum(1 for run in runs if SENSOR_TAG in run.tags)
        newest: list[Cycle] = []
        history: list[Cycle] = []
        for cycle in plan.cycles(self._project.bounds):
            if _is_newest(cycle, plan.latest_closed_day):
                newest.append(cycle)
            elif ours + len(history) < self._project.runs_in_flight:
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

    def _report_unreported(self, plan: Plan, runs: Sequence[dg.DagsterRun], hints: Hints) -> Hints:
        """Tell Dagster about a slice of what stands committed and was never reported."""
        if runs:
            return hints  # they report what they commit; what they leave out is told after them
        state = _fingerprint(plan.committed, self._instance)
        if state == hints.reported:
            return hints
        unreported = unreported_partitions(self._instance, plan.committed)
        count = report(self._project, self._instance, unreported, self._log, limit=REPORT_SLICE)
        if count:
            self._log.info(
                "Reported %s partitions that stood committed; %s to go.",
                count,
                len(unreported) - count,
            )
        return hints if len(unreported) > count else Hints(hints.newest_day, state)


def why_nothing(plan: Plan, runs: Sequence[dg.DagsterRun]) -> str:
    """Return in plain words why a tick launches nothing."""
    catalogue = plan.catalogue
    if plan.work:
        return (
            f"{len(plan.work)} partitions are missing and wait for a place: "
            f"{len(runs)} runs are unfinished."
        )
    if plan.blocked:
        return f"{len(plan.blocked)} partitions are missing, all in {len(runs)} unfinished runs."
    if not plan.expected:
        closes_at = catalogue.closing.closes_at(catalogue.first_day)
        return f"No day of {catalogue.name} has closed yet; the first one closes at {closes_at}."
    held = f" {len(plan.held)} are held." if plan.held else ""
    return (
        f"Nothing is missing: {len(plan.committed)} of {len(plan.expected)} expected partitions "
        f"are committed, up to {plan.latest_closed_day}.{held}"
    )


def _is_newest(cycle: Cycle, newest: date) -> bool:
    return cycle.last_day == newest and cycle.first_day == newest


def _fingerprint(committed: PartitionSet, instance: dg.DagsterInstance) -> str:
    """Return a short text that changes when the files or Dagster's memory of them do."""
    mark = event_log_mark(instance)
    masks = sorted((name, sorted(days.items())) for name, days in committed.masks.items())
    return hashlib.sha256(repr((mark, masks)).encode()).hexdigest()
