"""What is missing, as Luigi asks it: ``bulk_complete`` over one listing, range by range."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import luigi
from luigi.tools.range import RangeDaily

from backfill_assets_tests.benchmarks.work import a_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

WORK = json.load(sys.stdin)
ROOT = Path(WORK.pop("root"))
CATALOGUE = a_catalogue(**WORK)


class Partition(luigi.Task):
    """One partition; the listing knows whether it is there."""

    date = luigi.DateParameter()
    query = luigi.Parameter()
    unit = luigi.Parameter()
    listing: ClassVar[set[str]] = set()

    @classmethod
    def bulk_complete(cls, days: Iterable[date]) -> list[date]:
        """Return the days that are there; Luigi binds the other parameters to ``cls``."""
        of = cls.keywords  # a partial, of this class
        return [
            d for d in days if f"{of['query']}/v1/{d}/{of['unit']}.parquet" in Partition.listing
        ]


def main() -> None:
    """Look once, and see that no range asks for anything."""
    began = time.perf_counter()
    root = ROOT / CATALOGUE.name
    Partition.listing = {
        f"{folder[len(str(root)) + 1 :]}/{name}"
        for folder, _, names in os.walk(root)
        for name in names
    }
    for query in CATALOGUE.queries:
        for unit in CATALOGUE.unit_names:
            wanted = RangeDaily(
                of=Partition,
                of_params={"query": query.name, "unit": unit},
                start=CATALOGUE.first_day,
                stop=CATALOGUE.last_day + timedelta(days=1),
                days_back=100_000,
                reverse=True,
            )
            assert wanted.requires() == []
    print(json.dumps({"seconds": time.perf_counter() - began}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
