"""Databases that hold the flights: loaded once in a session, and cloned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.flights.load import load_flights
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.folder import ServerFolder
from backfill_assets.stores.postgres.locks import heritable
from backfill_assets_tests.postgres_fixtures import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets_tests.postgres_fixtures import Prepare, Workshop

TEMPLATE = "flights"
STOP_SECONDS = 60


def prepare(url: str) -> None:
    load_flights(url)


@pytest.fixture(scope="session")
def flights_url(workshop: Workshop) -> str:
    """A database that holds the flights, for tests that only read."""
    return workshop.clone(TEMPLATE, prepare)


@pytest.fixture
def own_flights_url(clone_database: Callable[[str, Prepare], str]) -> str:
    """A database that holds the flights, for one test to change."""
    return clone_database(TEMPLATE, prepare)


@pytest.fixture
def own_server() -> Iterator[tuple[EmbeddedPostgres, ServerFolder]]:
    """A server for one test to kill, and its folder."""
    with temporary_folder("backfill-test-") as path:
        server, folder = EmbeddedPostgres(path, durable=False), ServerFolder(path)
        yield server, folder
        server.leave()
        # PostgreSQL's processes hold this lock: the folder goes after the last of them.
        with heritable(folder.server_lock, timeout_seconds=STOP_SECONDS):
            pass
