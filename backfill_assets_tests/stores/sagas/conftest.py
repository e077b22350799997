from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.stores.sagas.schema import prepare_schema
from backfill_assets_tests.stores.sagas.trip import TABLES, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)
        connection.execute(TABLES)


@pytest.fixture
def world(clone_database: Callable[..., str], tmp_path: Path) -> Iterator[World]:
    made = World(clone_database("sagas", prepare), tmp_path)
    yield made
    for sagas in made.opened:
        sagas.close()
