"""Real instances of Dagster on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from backfill_assets.resources.instance_storage import close_connections
from backfill_assets.stores.releases.schema import prepare_schema
from backfill_assets_tests.postgres_fixtures import Prepare
from backfill_assets_tests.resources import instances
from backfill_assets_tests.resources.release_world import Subscriber, World


@pytest.fixture
def instance(
    clone_database: Callable[[str, Prepare], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dg.DagsterInstance]:
    """An instance whose tables exist and are empty."""

    def make_tables(url: str) -> None:
        monkeypatch.setenv(instances.URL_VARIABLE, url)
        with instances.open_instance(tmp_path / "template"):
            close_connections()

    url = clone_database("dagster instance", make_tables)
    monkeypatch.setenv(instances.URL_VARIABLE, url)
    with instances.open_instance(tmp_path / "home") as opened:
        yield opened
    close_connections()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a store may be."""
    return tmp_path / "store"


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
