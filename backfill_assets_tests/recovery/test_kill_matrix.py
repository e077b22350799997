"""Kills at random moments of everything that runs: the whole year by links, a month by markers.

The month is filled where the operating system refuses every link and rename in the store.
KILL_SEED chooses other moments and another order; a failure shows the seed and every kill.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets_tests.recovery.running import ERROR, Role, kill
from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import pause, wait_for
from backfill_assets_tests.recovery.watcher import (
    Watcher,
    committed_files,
    stamps_of_committed,
    stamps_of_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psutil

    from backfill_assets.stores.files.local import LocalPartitionStore
    from backfill_assets_tests.recovery.running import Product
    from backfill_assets_tests.recovery.watcher import Stamp

EVERYTHING = "everything"
KILLS_OF_THE_YEAR: list[Role | str] = [
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
KILLS_OF_THE_MONTH: list[Role | str] = [
    *[Role.RUN] * 4,
    Role.DAEMON,
    Role.CODE_SERVER,
    Role.POSTMASTER,
    Role.UP,
    EVERYTHING,
]
MONTH_CLOCK = "2013-02-01T12:00:00-05:00"  # January is closed
# On the path of Python: links and renames in the store are refused, in every process.
WITHOUT_LINKS = Path(__file__).parent / "without_links"
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
        self._all = len(watcher.sizes)
        self.killed_runs: list[int] = []
        self.count = 0

    def strike(self, target: Role | str) -> None:
        """Kill one process, or all of them; start `up` again where it was among them."""
        self._choose_moment()
        count = len(self._watcher.seen)
        assert count < self._all, f"complete after {self.count} kills: make the cycles smaller"
        if target == EVERYTHING:
            self._wait_for_attempt()
            victims = [p for processes in self._product.processes().values() for p in processes]
        else:
            victims = [self._choice.choice(self._wait_for_victims(Role(target)))]
        self._note(f"kill {target}: {', '.join(str(v.pid) for v in victims)}; {count} committed")
        kill(*victims)
        if target == Role.RUN:
            self.killed_runs += [victim.pid for victim in victims]
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
        wait_for("everything", self._is_complete, seconds=COMPLETE_SECONDS, every=0.5)
        self._note("complete")

    def _is_complete(self) -> bool:
        self.check_up()
        return len(self._watcher.seen) == self._all

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

    def _wait_for_attempt(self) -> None:
        """Wait until a run is at its files, so that the next start has something to revoke."""

        def look() -> bool:
            self.check_up()
            return self._product.store.is_alive("")

        wait_for("a run at its files", look, seconds=VICTIM_SECONDS)

    def _note(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}")  # noqa: T201 - for a failure


def complete_despite(
    kills: list[Role | str],
    product: Product,
    expected: dict[str, bytes],
    look: Callable[[LocalPartitionStore], Iterator[tuple[str, Stamp]]],
) -> tuple[Killer, Watcher]:
    """Run a product through the kills until all that is expected stands and is shown; stop it."""
    seed = int(os.environ.get("KILL_SEED", "2013"))
    print(f"KILL_SEED={seed}")  # noqa: T201 - for a failure
    choice = random.Random(seed)
    sizes = {path: len(content) for path, content in expected.items()}
    product.up()
    with Watcher(product.store, sizes, random.Random(seed), look) as watcher:
        killer = Killer(product, watcher, choice)
        for target in choice.sample(kills, len(kills)):
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
    return killer, watcher


@pytest.mark.timeout(1_800)  # two dozen recoveries, each of seconds, also on a busy machine
def test_a_year_that_is_killed_all_the_time_equals_an_undisturbed_one(
    new_product: Callable[..., Product], year: dict[str, bytes]
) -> None:
    # Small runs: a fast machine that does nothing else is not complete before the last kill.
    product = new_product(tick_seconds="2", max_days="12")

    killer, watcher = complete_despite(KILLS_OF_THE_YEAR, product, year, stamps_of_files)

    assert killer.count >= 20
    assert watcher.verified > 200
    assert len(year) == 16_764
    assert files_of(product.store.root) == year


@pytest.mark.timeout(900)
def test_a_month_by_markers_without_links_or_renames_equals_an_undisturbed_one_after_kills(
    new_product: Callable[..., Product], year: dict[str, bytes]
) -> None:
    month = {path: content for path, content in year.items() if "/2013-01-" in path}
    product = without_links(new_product(clock=MONTH_CLOCK, tick_seconds="2", max_days="1"))
    product.settings = {**product.settings, "BACKFILL_COMMIT_PROTOCOL": "marker"}

    killer, watcher = complete_despite(KILLS_OF_THE_MONTH, product, month, stamps_of_committed)

    assert killer.count == 9
    assert watcher.verified > 200
    assert len(month) == 1_068
    store = product.store
    found = {path: Path(file).read_bytes() for path, file in committed_files(store)}
    assert found == month
    assert all(store.verify(partition) for partition in store.scan(FLIGHTS).committed)
    assert "Recovered" in product.output
    # Links were refused in the runs that were killed, and so in those that were not.
    refusing = {int(path.name) for path in (product.home / "without-links").iterdir()}
    assert refusing.intersection(killer.killed_runs)


def test_where_links_are_refused_the_product_does_not_start_and_names_markers(
    new_product: Callable[..., Product],
) -> None:
    product = without_links(new_product(clock=MONTH_CLOCK))

    refused = product.run("up", "--port", str(product.port))

    assert refused.returncode == ERROR
    root = product.home / "store"
    assert f"StoreUnsupportedError: {root}: Operation not permitted, so a " in refused.stderr
    assert "BACKFILL_COMMIT_PROTOCOL=marker, which needs neither links nor ren" in refused.stderr
    assert not product.store.exists()


@pytest.mark.parametrize(
    ("call", "code"), [("link", errno.EPERM), ("rename", errno.ENOTSUP), ("replace", errno.ENOTSUP)]
)
def test_each_way_to_give_a_file_another_name_is_refused_in_the_store_and_nowhere_else(
    new_product: Callable[..., Product], call: str, code: int
) -> None:
    product = without_links(new_product())
    (product.home / "store").mkdir(parents=True)
    program = f"import os, sys; open(sys.argv[1], 'w'); os.{call}(*sys.argv[1:])"
    answers = {}
    for target in ("store/b", "b"):
        command = [sys.executable, "-c", program, f"{product.home}/a", f"{product.home}/{target}"]
        answers[target] = subprocess.run(
            command, env=product.environment, capture_output=True, text=True, check=False
        )

    assert f"[Errno {code}]" in answers["store/b"].stderr
    assert (answers["b"].returncode, answers["b"].stderr) == (0, "")
    assert [path.name for path in (product.home / "store").iterdir()] == []


def without_links(product: Product) -> Product:
    """Return a product that gets every link and rename in its store refused."""
    product.settings = {**product.settings, "PYTHONPATH": str(WITHOUT_LINKS)}
    return product
