"""What `up` says of where it finds things."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.resources import up as module
from backfill_assets.resources.settings import Settings
from backfill_assets.resources.up import Up

from .small_project import a_project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:hunter2@db.example:5433/sales?sslmode=require", "db.example:5433/sales"),
        ("postgresql://db.example/sales?user=ada&password=hunter2", "db.example/sales"),
    ],
)
def test_the_place_of_the_database_is_told_and_nothing_of_who_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    told: list[str] = []
    environment = {"BACKFILL_ENV_FILE": "", "BACKFILL_HOME": str(tmp_path)}
    chosen = Settings.load(environment | {"BACKFILL_DATABASE_URL": url})
    # Nothing listens there: it is asked as far as its place is told.
    monkeypatch.setattr(module, "source_database_url", lambda: url)
    project = a_project(chosen.store_root)

    with pytest.raises(StopIteration):
        Up(chosen, project, lambda line: _listen(told, line)).run(
            3000, lambda _plans: None, until_complete=True
        )

    assert told[-1] == f"PostgreSQL  your server, {shown}"


def _listen(told: list[str], line: str) -> None:
    """Keep what is said, and end the start once the database was spoken of."""
    told.append(line)
    if line.startswith("PostgreSQL"):
        raise StopIteration
