"""Real instances of Dagster on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.resources.instance_storage import close_connections
from backfill_assets_tests.postgres_fixtures import Prepare
from backfill_assets_tests.resources import instances
from backfill_assets_tests.resources.release_fixtures import subscriber, world

__all__ = ["instance", "root", "subscriber", "world"]


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
