"""Homes for running projects, and the year as it should be."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from backfill_assets.flights.load import load_flights
from backfill_assets_tests.postgres_fixtures import Workshop, temporary_folder
from backfill_assets_tests.recovery.running import SMALL_CLOCK, STOP_SECONDS, Product
from backfill_assets_tests.recovery.undisturbed import complete_store, files_of
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backfill_assets.stores.files.local import LocalPartitionStore

SMALL = {"BACKFILL_CLOCK": SMALL_CLOCK, "BACKFILL_TICK_SECONDS": "2"}
SMALL_SECONDS = 240  # it takes about 30 on a quiet machine

MakeProduct = Callable[..., Product]


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> None:
    """Let it work in what is started here, also where the tests themselves run in the background.

    A shell starts what is in the background with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def load(url: str) -> None:
    load_flights(url)


@pytest.fixture(scope="session")
def undisturbed(workshop: Workshop) -> Iterator[LocalPartitionStore]:
    """A store with the complete year, computed without Dagster."""
    with temporary_folder("backfill-year-") as folder:
        yield complete_store(folder / "store", workshop.clone("flights", load))


@pytest.fixture(scope="session")
def year(undisturbed: LocalPartitionStore) -> dict[str, bytes]:
    """Every file that a complete store has, by its path."""
    return files_of(undisturbed.root)


@pytest.fixture
def new_product() -> Iterator[MakeProduct]:
    """Makes products, each with a home of its own; what they leave running is killed."""
    with temporary_folder("backfill-home-") as folder:
        made: list[Product] = []

        def new(**settings: str) -> Product:
            names = {f"BACKFILL_{name.upper()}": value for name, value in settings.items()}
            made.append(Product(home=folder / f"home{len(made)}", settings=names))
            return made[-1]

        yield new
        for product in made:
            product.end()
            print(product.logs())  # noqa: T201 - pytest shows it where the test failed


@pytest.fixture(scope="session")
def complete_home() -> Iterator[Path]:
    """A home in which `up` has completed the small year, and nothing runs any more."""
    with temporary_folder("backfill-home-") as folder:
        product = Product(home=folder / "home", settings=SMALL)
        try:
            product.up("--until-complete")
            code = product.exit_code(seconds=SMALL_SECONDS)
            assert code == 0, product.logs()
            wait_for("the end of PostgreSQL", product.is_gone, seconds=STOP_SECONDS)
        finally:
            product.end()
        yield product.home


@pytest.fixture(scope="module")
def running_product(complete_home: Path) -> Iterator[Product]:
    """A product that is up and complete, for tests that leave it so; one for all of a module."""
    with temporary_folder("backfill-home-") as folder:
        product = Product(home=folder / "home", settings=SMALL)
        shutil.copytree(complete_home, product.home)
        try:
            product.up()
            product.wait_until_it_answers()
            yield product
            assert product.stop() == 0
        finally:
            product.end()
            print(product.logs())  # noqa: T201 - as above


@pytest.fixture
def small_product(new_product: MakeProduct) -> Product:
    """A product with an empty store and a clock that stands still on 12 January 2013."""
    return new_product(clock=SMALL_CLOCK, tick_seconds="2")


@pytest.fixture
def complete_product(small_product: Product, complete_home: Path) -> Product:
    """The same with a complete store; not running."""
    shutil.copytree(complete_home, small_product.home)
    return small_product
