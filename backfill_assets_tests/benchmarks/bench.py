"""What every comparison is given: a folder, a PostgreSQL, and how much of the work is wanted."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import patch

from backfill_assets.flights.load import load_flights
from backfill_assets.resources.instance_storage import close_connections
from backfill_assets_tests.resources import instances

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import dagster as dg

    from backfill_assets_tests.postgres_fixtures import Workshop

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a comparison works.

    Attributes:
        folder: Its own, on the disk that the store would be on.
        workshop: Makes databases.
        results: Where plots go.
        small: Whether to do a little of the work only, to see that everything runs.
    """

    folder: Path
    workshop: Workshop = field(repr=False)
    results: Path
    small: bool = False

    def new_folder(self, name: str) -> Path:
        """Return the path of a folder that is not there yet."""
        return self.folder / f"{name}-{next(_NUMBERS)}"

    def flights_url(self) -> str:
        """Return the address of a database that holds the flights."""
        return self.workshop.clone("flights", load)

    @contextmanager
    def dagster(self, url: str) -> Iterator[dg.DagsterInstance]:
        """Yield a Dagster on the product's own storage, in the database at an address."""
        variables = {instances.URL_VARIABLE: url}
        with (
            patch.dict(os.environ, variables),
            instances.open_instance(self.new_folder("dagster")) as instance,
        ):
            yield instance
            close_connections()


def load(url: str) -> None:
    """Put the flights into an empty database."""
    load_flights(url)
