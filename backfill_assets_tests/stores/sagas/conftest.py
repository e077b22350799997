from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.stores.sagas.trip import World, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def world(clone_database: Callable[..., str], tmp_path: Path) -> Iterator[World]:
    made = World(clone_database("sagas", prepare), tmp_path)
    yield made
    for sagas in made.opened:
        sagas.close()
