"""Small models, trained once in a session, and a workbench for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets.flights.models.training import train
from backfill_assets_tests.flights.models.workbench import JANUARY, Workbench

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.flights.models.scores import DelayModels


@pytest.fixture(scope="session")
def january(flights_url: str) -> DelayModels:
    """Models that have learned from January."""
    return train(flights_url, JANUARY)


@pytest.fixture(scope="session")
def folder(january: DelayModels, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A folder that holds them, for tests that only read."""
    root = tmp_path_factory.mktemp("models")
    folder = ModelFolder(lambda: root)
    folder.save(january)
    return folder


@pytest.fixture
def workbench(database: str, flights_url: str, folder: ModelFolder, tmp_path: Path) -> Workbench:
    """An empty log database, and the flights."""
    bench = Workbench(database, flights_url, folder, tmp_path)
    bench.prepare()
    return bench
