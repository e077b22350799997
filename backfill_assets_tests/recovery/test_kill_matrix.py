"""The whole year through more than twenty kills, at random moments, of everything that runs.

KILL_SEED chooses other moments and another order; a failure shows the seed and every kill.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.recovery.running import Role, kill
from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import pause, wait_for
from backfill_assets_tests.recovery.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

    from backfill_assets_tests.recovery.running import Product

PARTITIONS = 16_764
EVERYTHING = "everything"
KILLS: list[Role | str] = [
    *[Role.RUN] * 6,
    *[Role.DAEMON] * 3,
    *[Role.CODE_SERVER] * 3,
    *[Role.POSTMASTER] * 3,
    *[Role.WEBSERVER] * 2,
    *[Role.BACKEND] * 2,
    *[Role.KEEPER] * 2,
    *[Role.UP] * 2,
    *[EVERYTHING] * 2,
]
BETWEEN_KILLS_SECONDS = (0.2, 2.5)
PROGRESS_SECONDS = 15  # as long a kill waits for the work to go on; half of the kills do not wait
VICTIM_SECONDS = 120  # until there is a process to be killed, which may be starting again
COMPLETE_SECONDS = 900  # many times what it takes on a quiet machine
REPORTED_SECONDS = 240


class Killer:
    """Kills what it is told to, at moments that a seed decides, and writes it down."""

    def __init__(self, product: Product, watcher: Watcher, choice: random.Random) -> None:
        self._product = product
        self._watcher = watcher
        self._choice = choice
        self._began = time.monotonic()
        self.count = 0

    def strike(self, target: Role | str) -> None:
        """Kill one process, or all of them; start `up` again where it was among them."""
        self._choose_moment()
        count = len(self._watcher.seen)
        assert count < PARTITIONS, f"complete after {self.count} kills: make the cycles smaller"
        if target == EVERYTHING:
            victims = [p for processes in self._product.processes().values() for p in processes]
        else:
            victims = [self._choice.choice(self._wait_for_victims(Role(target)))]
        self._note(f"kill {target}: {', '.join(str(v.pid) for v in victims)}; {count} committed")
        kill(*victims)
        self.count += 1
        if target in {Role.UP, EVERYTHING}:
            pause(self._choice.uniform(*BETWEEN_KILLS_SECONDS))
            self._product.up()
            self._note("`up` again")
        self.check_up()

    def check_up(self) -> None:
        """Fail if `up` has ended by itself, or the watcher has seen something wrong."""
        self._watcher.check()
        assert self._product.is_up(), f"`up` ended by itself:\n{self._product.output}"

    def wait_until_complete(self) -> None:
        wait_for("the year", self._is_complete, seconds=COMPLETE_SECONDS, every=0.5)
        self._note("complete")

    def _is_complete(self) -> bool:
        self.check_up()
        return len(self._watcher.seen) == PARTITIONS

    def _choose_moment(self) -> None:
        """Wait a little, and every other time until something was committed."""
        if self._choice.random() < 0.5:
            before = len(self._watcher.seen)
            deadline = time.monotonic() + PROGRESS_SECONDS
            while len(self._watcher.seen) == before and time.monotonic() < deadline:
                pause(0.1)
        pause(self._choice.uniform(*BETWEEN_KILLS_SECONDS))

    def _wait_for_victims(self, role: Role) -> list[psutil.Process]:
        def look() -> list[psutil.Process]:
            self.check_up()
            return self._product.processes()[role]

        return wait_for(f"a process to kill: {role}", look, seconds=VICTIM_SECONDS, every=0.2)

    def _note(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}")  # noqa: T201 - for a failure


@pytest.mark.timeout(1_800)  # two dozen recoveries, each of seconds, also on a busy machine
def test_a_year_that_is_killed_all_the_time_equals_an_undisturbed_one(
    new_product: Callable[..., Product], year: dict[str, bytes]
) -> None:
    seed = int(os.environ.get("KILL_SEED", "2013"))
    print(f"KILL_SEED={seed}")  # noqa: T201 - for a failure
    choice = random.Random(seed)
    kills = choice.sample(KILLS, len(KILLS))
    # Small runs: a fast machine that does nothing else is not complete before the last kill.
    product = new_product(tick_seconds="2", max_days="12")
    sizes = {path: len(content) for path, content in year.items()}
    product.up()
    with Watcher(product.store, sizes, random.Random(seed)) as watcher:
        killer = Killer(product, watcher, choice)
        for target in kills:
            killer.strike(target)
        killer.wait_until_complete()
        wait_for(
            "Dagster to show what is committed",
            lambda: product.materialized() == product.committed(),
            seconds=REPORTED_SECONDS,
            every=2,
        )
    assert product.stop(signal.SIGINT) == 0

    assert watcher.wrong == []
    assert killer.count >= 20
    assert watcher.verified > 200
    assert files_of(product.store.root) == year
