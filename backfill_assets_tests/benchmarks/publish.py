"""Durable publishing of small files, beside flushing them one by one and not flushing at all.

The bytes are the same for all: encoding a file is not what is compared.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Comparison, compare

GROUP = 360  # files that the product flushes together: 30 days × 3 units × 4 value types


def run(folder: Path, *, small: bool) -> Comparison:
    """Compare on 2,880 files, or on a few; each round into folders of its own."""
    days = 4 if small else 60
    catalogue = work.a_catalogue(days=days, units=3, queries=16)
    last = catalogue.last_day or work.FIRST_DAY
    partitions = [
        catalogue.partition(query.name, day, unit)
        for query in catalogue.queries
        for day in catalogue.days(work.FIRST_DAY, last)
        for unit in catalogue.unit_names
    ]
    tables = {query.category: work.rows(query.category) for query in catalogue.queries}
    numbers = itertools.count()

    def product() -> None:
        store = LocalPartitionStore(folder / f"store{next(numbers)}", [catalogue])
        store.prepare()
        with store.attempt("bench") as attempt:
            for first in range(0, len(partitions), GROUP):
                for partition in partitions[first : first + GROUP]:
                    attempt.stage(partition, tables[partition.query.category])
                attempt.publish()

    content = _sample(folder / "sample")

    def one_by_one(*, flush: bool) -> None:
        root = folder / f"plain{next(numbers)}"
        for partition in partitions:
            target = root / partition.query.name / str(partition.day) / f"{partition.unit}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, content, flush=flush)

    return compare(
        "publish",
        {
            "product": product,
            "fsync, rename, fsync the folder": lambda: one_by_one(flush=True),
            "no flushing": lambda: one_by_one(flush=False),
        },
        unit="file",
        parts=len(partitions),
        rounds=1 if small else 3,
    )


def _sample(folder: Path) -> bytes:
    """Return the bytes of one file as the product writes it."""
    catalogue = work.a_catalogue(days=1, units=1, queries=4)
    store = LocalPartitionStore(folder, [catalogue])
    store.prepare()
    query, (unit,) = catalogue.queries[0], catalogue.unit_names
    with store.attempt("sample") as attempt:
        attempt.stage(
            catalogue.partition(query.name, work.FIRST_DAY, unit), work.rows(query.category)
        )
        (published,) = attempt.publish()
    return Path(store.location(published.partition)).read_bytes()


def _write(target: Path, content: bytes, *, flush: bool) -> None:
    draft = target.with_suffix(".tmp")
    with draft.open("wb") as file:
        file.write(content)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(target)
    if flush:
        descriptor = os.open(target.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
