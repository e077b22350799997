"""Real instances of Dagster on a real PostgreSQL, whose runs are executed in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.resources.instance_storage import close_connections
from backfill_assets_tests.resources import instances
from backfill_assets_tests.resources.release_fixtures import subscriber, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Prepare

__all__ = ["instance", "root", "subscriber", "world"]

AT_ONCE = """
run_launcher:
  module: backfill_assets_tests.defs.launcher
  class: LauncherOfTests
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a store may be."""
    return tmp_path / "store"


@pytest.fixture
def instance(
    clone_database: Callable[[str, Prepare], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """An instance whose tables exist and are empty."""

    def make_tables(url: str) -> None:
        monkeypatch.setenv(instances.URL_VARIABLE, url)
        with instances.open_instance(tmp_path / "template"):
            close_connections()

    url = clone_database("dagster instance", make_tables)
    monkeypatch.setenv(instances.URL_VARIABLE, url)
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(instances.DAGSTER_YAML + AT_ONCE)
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened
    close_connections()
