"""Plain Dagster on a sample: it takes a quarter of an hour for the year, and grows linearly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets_tests.benchmarks.peers.environment import run_peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets_tests.benchmarks.bench import Bench

BATCHED = {"DAGSTER_EVENT_BATCH_SIZE": "1000"}


@dataclass(frozen=True, slots=True)
class Found:
    """What a sample took."""

    seconds: float
    partitions: int

    @property
    def milliseconds_each(self) -> float:
        """What a partition took."""
        return 1e3 * self.seconds / self.partitions


def single_run(
    bench: Bench,
    categories: Sequence[str],
    last_day: str,
    variables: dict[str, str],
    *,
    events_only: bool = False,
) -> Found:
    """Have plain Dagster make categories from 1 January on, in one run, on a fresh database.

    Args:
        events_only: Whether its assets do nothing, so that only its own events are left.
    """
    folder = bench.new_folder("plain")
    found = run_peer(
        "dagster_single_run",
        variables | places(bench, folder),
        home=folder / "home",
        dagster_url=bench.workshop.create(),
        categories=categories,
        first_day="2013-01-01",
        last_day=last_day,
        events_only=events_only,
    )
    return Found(found["seconds"], found["partitions"])


def places(bench: Bench, folder: object) -> dict[str, str]:
    """Return the variables that tell plain assets where to read and to write."""
    return {"PEER_SOURCE_URL": bench.flights_url(), "PEER_ROOT": f"{folder}/files"}


def run_each(bench: Bench, runs: int) -> Found:
    """Have plain Dagster's daemon make partitions, each in a run of its own."""
    folder = bench.new_folder("plain")
    found = run_peer(
        "dagster_run_each",
        places(bench, folder) | {"PEER_RUNS": str(runs)},
        home=folder / "home",
        dagster_url=bench.workshop.create(),
    )
    return Found(found["seconds"], found["runs"])
