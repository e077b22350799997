"""A project whose days can be released, and who listens for it; for several folders of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.stores.releases.schema import prepare_schema
from backfill_assets_tests.resources.release_world import Subscriber, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Prepare


def prepare_releases(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)


@pytest.fixture
def world(clone_database: Callable[[str, Prepare], str], root: Path) -> Iterator[World]:
    """A project whose days can be released; nothing is committed yet."""
    made = World(clone_database("releases", prepare_releases), root)
    yield made
    made.close()


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    """Who listens at an address of this machine."""
    listening = Subscriber()
    yield listening
    listening.close()
