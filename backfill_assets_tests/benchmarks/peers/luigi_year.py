"""The year with Luigi: a task for each partition, ranges of days backwards, its local scheduler."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from functools import cache

import luigi
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from luigi.tools.range import RangeDailyBase

from backfill_assets.flights.source import FlightsSource
from backfill_assets_tests.benchmarks.work import open_flights

WORK = json.load(sys.stdin)
CATALOGUE = open_flights(WORK["days"])
FIRST_DAY, LAST_DAY = CATALOGUE.first_day, CATALOGUE.last_day
VALUE_TYPES = [value_type.name for value_type in CATALOGUE.value_types]
BATCH_DAYS = 30  # as many as the product asks for at once
SOURCE = FlightsSource(lambda: WORK["url"])


@cache
def batch(category: str, number: int) -> pa.Table:
    """Read a month of a category by one query; every later task finds it here."""
    first = FIRST_DAY + timedelta(days=number * BATCH_DAYS)
    days = [first + timedelta(days=n) for n in range(BATCH_DAYS)]
    days = [day for day in days if day <= LAST_DAY]
    return SOURCE.read(category, VALUE_TYPES, days, CATALOGUE.unit_names)


class PartitionTask(luigi.Task):
    """One partition, one file."""

    date = luigi.DateParameter()
    category = luigi.Parameter()
    value_type = luigi.Parameter()
    unit = luigi.Parameter()

    def output(self) -> luigi.LocalTarget:
        """Return the file."""
        name = f"{self.category}/{self.value_type}/{self.date}/{self.unit}.parquet"
        return luigi.LocalTarget(f"{WORK['root']}/{name}", format=luigi.format.Nop)

    def run(self) -> None:
        """Write the file; Luigi renames it when it is closed, and flushes nothing."""
        rows = self.rows().select(["date", "unit", self.category, self.value_type])
        table = rows.rename_columns(["date", "unit", self.category, "value"])
        with self.output().open("w") as file:
            pq.write_table(table, file, compression="none", use_dictionary=False)

    def rows(self) -> pa.Table:
        """Return the rows of this partition."""
        if not WORK["batched"]:
            return SOURCE.read(self.category, [self.value_type], [self.date], [self.unit])
        rows = batch(self.category, (self.date - FIRST_DAY).days // BATCH_DAYS)
        own = pc.and_(pc.equal(rows["date"], self.date), pc.equal(rows["unit"], self.unit))
        return rows.filter(own)


def ranges() -> list[RangeDailyBase]:
    """Return the days of every query and unit, the newest first."""
    return [
        RangeDailyBase(
            of=PartitionTask,
            of_params={"category": query.category, "value_type": query.value_type, "unit": unit},
            start=FIRST_DAY,
            stop=LAST_DAY + timedelta(days=1),
            days_back=100_000,
            reverse=True,
            task_limit=WORK["days"],
        )
        for query in CATALOGUE.queries
        for unit in CATALOGUE.unit_names
    ]


def main() -> None:
    """Do the work, and say how long it took."""
    began = time.perf_counter()
    is_done = luigi.build(ranges(), local_scheduler=True, log_level="ERROR")
    seconds = time.perf_counter() - began
    assert is_done
    print(json.dumps({"seconds": seconds}))  # noqa: T201 - read by the comparison


if __name__ == "__main__":
    main()
