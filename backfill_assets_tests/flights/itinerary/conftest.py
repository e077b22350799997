"""Books of ours and of the partner: made once in a session, and emptied for each test.

Making and dropping two databases takes seconds, and there are many faults to go through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from backfill_assets_tests.flights.itinerary.journeys import World, prepare_ours, prepare_partner
from backfill_assets_tests.flights.itinerary.partner_process import running_partner
from backfill_assets_tests.stores.sagas.trip import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets_tests.postgres_fixtures import Workshop

TABLES = """
SELECT schemaname, tablename FROM pg_tables
 WHERE schemaname IN ('public', 'itinerary', 'hotels') AND tablename NOT LIKE '%_schema'
"""


def empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        names = [sql.Identifier(*row) for row in connection.execute(TABLES)]
        tables = sql.SQL(", ").join(names)
        connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(tables))


@pytest.fixture(scope="session")
def databases(workshop: Workshop) -> Iterator[tuple[str, str]]:
    """Our database and the partner's, as one test left them."""
    urls = workshop.create(), workshop.create()
    prepare_ours(urls[0])
    prepare_partner(urls[1])
    yield urls
    for url in urls:
        workshop.drop(url)


@pytest.fixture
def world(databases: tuple[str, str]) -> Iterator[World]:
    ours, partners = databases
    for url in databases:
        empty(url)
    prepare_ours(ours)
    prepare_partner(partners)
    clock = Clock()
    with running_partner(partners, clock) as partner:
        made = World(ours, partners, partner, clock)
        yield made
        for sagas in made.opened:
            sagas.close()
