"""A tick of the sensor that finds nothing to do; and the commands of a terminal, on as much."""

from __future__ import annotations

from functools import partial
from io import StringIO
from typing import TYPE_CHECKING
from unittest.mock import patch

from rich.console import Console

from backfill_assets.core.coverage import Coverage
from backfill_assets.resources import pace, terminal
from backfill_assets.resources.clock import FixedClock, RealClock
from backfill_assets.resources.coverage_report import facts
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.resources.run_requests import asset_key
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.files.looks import Looks
from backfill_assets.stores.publishing_log import PublishingLog
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, Goal, in_turns, under
from backfill_assets_tests.benchmarks.remembered import remember
from backfill_assets_tests.benchmarks.scan import look_until_settled
from backfill_assets_tests.resources.dagster_of_tests import Dagster

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets_tests.benchmarks.bench import Bench

ROUNDS = 5


def run(bench: Bench) -> list[Figure]:
    """Measure on the year and on the million, all committed and all reported, or on a few."""
    year = work.a_catalogue(days=5 if bench.small else 365, units=3, queries=16)
    million = work.a_catalogue(
        **({"days": 9, "units": 5, "queries": 4} if bench.small else work.MILLION)
    )
    return [
        *figures(bench, year, "the year", tick=under(0.2)),
        *figures(bench, million, "a million", tick=under(2.5)),
    ]


def figures(bench: Bench, catalogue: Catalogue, name: str, *, tick: Goal) -> list[Figure]:
    """Return what a tick, ``plan`` and ``status`` take when nothing is missing."""
    url, log_url = bench.workshop.create(), bench.workshop.create()
    project = a_project(bench, catalogue, log_url)
    with bench.dagster(url) as instance:
        remember(instance, url, catalogue, [asset_key(query) for query in catalogue.queries])
        dagster = Dagster(project, instance)
        with patch.object(pace, "RESTS", 0):
            assert dagster.tick().run_requests  # a look at the coverage, once
        look_until_settled(bench, partial(quiet_tick, dagster))
        found = in_turns(
            {
                "tick": partial(quiet_tick, dagster),
                "first": partial(first, project, partial(quiet_tick, dagster)),
                "plan": partial(first, project, partial(plan, project)),
                "status": partial(first, project, partial(status, project)),
            },
            rounds=1 if bench.small else ROUNDS,
        )
    count = len(project.plan(catalogue).committed)
    names = {
        "tick": "no-op tick of the sensor",
        "first": "no-op tick, the first of a process",
        "plan": "command plan",
        "status": "command status",
    }
    return [
        Figure(
            what=f"{names[one]}, {name} complete: {count:,} partitions",
            unit="s",
            product=samples,
            goal=tick if "tick" in names[one] else None,
            note="" if "tick" in names[one] else "without the start of the interpreter",
        )
        for one, samples in found.items()
    ]


def a_project(bench: Bench, catalogue: Catalogue, log_url: str) -> Project:
    """Return a project whose store holds every partition, with its memory of failures."""
    store = LocalPartitionStore(bench.new_folder("store"), [catalogue])
    store.prepare()
    work.plant(store.root, catalogue)
    return Project(
        data_sets=[DataSet(catalogue, work.MadeUpSource())],
        store=store,
        clock=FixedClock(work.NOW),
        publishing_log=PublishingLog(lambda: log_url, RealClock().now),
    )


def quiet_tick(dagster: Dagster) -> None:
    """Evaluate the sensor as the daemon does, without its rests; it must find nothing."""
    with patch.object(pace, "RESTS", 0):
        assert "Nothing is missing" in (dagster.tick().skip_message or "")


def first(project: Project, look: Callable[[], None]) -> None:
    """Look as a process does that has looked at nothing before."""
    assert isinstance(project.store, LocalPartitionStore)
    with patch.object(project.store, "_looks", Looks()):
        look()


def plan(project: Project) -> None:
    """Do what ``backfill-assets plan`` does."""
    (catalogue,) = project.catalogues
    terminal.print_plan(Console(file=StringIO()), project.plan(catalogue), project.bounds)


def status(project: Project) -> None:
    """Do what ``backfill-assets status`` does."""
    (catalogue,) = project.catalogues
    one = project.plan(catalogue)
    known = facts(Coverage(one), project.failures(catalogue), project.seconds_left(one))
    terminal.print_status(Console(file=StringIO()), known)
