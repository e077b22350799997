"""A world for each test: the log's tables, those of effects, and a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.stores.log.world import World, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def world(clone_database: Callable[[str, Callable[[str], None]], str]) -> Iterator[World]:
    """Return a world in which nothing has happened yet."""
    one = World(clone_database("log", prepare))
    yield one
    one.close()
