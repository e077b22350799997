"""Shops whose names hold whatever a unit's name may hold, as a code location without a sensor."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from backfill_assets.core.catalogue import Category, Unit
from backfill_assets.defs.assets import IO_MANAGER, partition_assets
from backfill_assets.resources.partition_io_manager import partition_io_manager
from backfill_assets_tests.resources.small_project import a_catalogue, a_project

STORE_VARIABLE = "BACKFILL_TEST_STORE"
ODD = ("Q1 2024.", "a:b/c", "..", "Zürich 東京 🛫", "C:\\x*", "R&D + <b>#1?</b> 'n' `%`")
SHOPS = a_catalogue(units=[Unit("Paris"), *map(Unit, ODD)], categories=[Category("article")])


def definitions() -> dg.Definitions:
    """Return the assets over the store that the environment names."""
    project = a_project(Path(os.environ[STORE_VARIABLE]), catalogue=SHOPS)
    return dg.Definitions(
        assets=partition_assets(project),
        resources={IO_MANAGER: partition_io_manager(project)},
        executor=dg.in_process_executor,
    )


defs = dg.Definitions() if STORE_VARIABLE not in os.environ else definitions()
