"""Durable publishing of small files, beside flushing them one by one and not flushing at all.

The bytes are ready and the same for all: encoding a file is not what is compared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.resources.partition_stream import GROUP_FILES
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.benchmarks import work
from backfill_assets_tests.benchmarks.measuring import Figure, each, faster, in_turns, within

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord
    from backfill_assets_tests.benchmarks.bench import Bench

SAMPLE = 10  # flushing one by one takes minutes: only a tenth of the files is published so


def run(bench: Bench) -> list[Figure]:
    """Compare on 17,520 files, or on a few; each round into folders of its own."""
    catalogue = work.a_catalogue(days=10 if bench.small else 365, units=3, queries=16)
    partitions = [
        catalogue.partition(query.name, day, unit)
        for query in catalogue.queries
        for day in catalogue.days(work.FIRST_DAY, catalogue.latest_closed_day(work.NOW))
        for unit in catalogue.unit_names
    ]
    record, content = a_file(bench, catalogue, partitions[0])
    sample = partitions[::SAMPLE]
    seconds = in_turns(
        {
            "product": lambda: product(bench.new_folder("store"), partitions, record, content),
            "one by one": lambda: plainly(bench.new_folder("plain"), sample, content, flush=True),
            "no flushing": lambda: plainly(
                bench.new_folder("plain"), partitions, content, flush=False
            ),
        },
        rounds=1 if bench.small else 3,
    )
    ours = each(seconds["product"], len(partitions), factor=1e3)
    return [
        Figure(
            what=f"publishing {len(partitions):,} small files, durably",
            unit="ms a file",
            product=ours,
            against="fsync the file, rename, fsync the folder, one by one",
            other=each(seconds["one by one"], len(sample), factor=1e3),
            goal=faster(5),
            note=f"one by one on every {SAMPLE}th file",
        ),
        Figure(
            what=f"publishing {len(partitions):,} small files, durably",
            unit="ms a file",
            product=ours,
            against="write and rename, no flushing at all",
            other=each(seconds["no flushing"], len(partitions), factor=1e3),
            goal=within(2),
        ),
    ]


def product(root: Path, partitions: list[Partition], record: CommitRecord, content: bytes) -> None:
    """Publish in groups, as runs do."""
    catalogue = work.a_catalogue(days=365, units=3, queries=16)
    store = LocalPartitionStore(root, [catalogue])
    store.prepare()
    with store.attempt("bench") as attempt:
        for first in range(0, len(partitions), GROUP_FILES):
            for partition in partitions[first : first + GROUP_FILES]:
                attempt.stage_file(partition, record, content)
            attempt.publish()


def plainly(root: Path, partitions: list[Partition], content: bytes, *, flush: bool) -> None:
    """Write each file beside its target and rename it."""
    for partition in partitions:
        folder = f"{root}/{partition.query.name}/{partition.day}"
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - text, for speed
        _write(f"{folder}/{partition.unit}.parquet", folder, content, flush=flush)


def a_file(bench: Bench, catalogue: Catalogue, partition: Partition) -> tuple[CommitRecord, bytes]:
    """Return what a file says about itself, and its bytes, as the product writes it."""
    store = LocalPartitionStore(bench.new_folder("sample"), [catalogue])
    store.prepare()
    with store.attempt("sample") as attempt:
        attempt.stage(partition, work.rows(partition.query.category))
        (published,) = attempt.publish()
    return published.record, Path(store.location(partition)).read_bytes()


def _write(target: str, folder: str, content: bytes, *, flush: bool) -> None:
    draft = f"{target}.tmp"
    with open(draft, "wb") as file:  # noqa: PTH123 - text, for speed
        file.write(content)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    os.replace(draft, target)  # noqa: PTH105
    if flush:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
