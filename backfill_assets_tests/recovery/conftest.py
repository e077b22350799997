"""Homes for running projects, and the year as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.flights.load import load_flights
from backfill_assets_tests.postgres_fixtures import Workshop, temporary_folder
from backfill_assets_tests.recovery.running import Product
from backfill_assets_tests.recovery.undisturbed import complete_store, files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.stores.files.local import LocalPartitionStore

MakeProduct = "Callable[..., Product]"


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
def new_product(request: pytest.FixtureRequest) -> Iterator[Callable[..., Product]]:
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
            # Shown by pytest where the test failed.
            print(product.logs())  # noqa: T201
