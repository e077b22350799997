"""What readers see while a partition is restated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backfill_assets_tests.stores.children import Gate, child
from backfill_assets_tests.stores.examples import FLIGHTS, JFK, a_store, publish, rows_of

if TYPE_CHECKING:
    from pathlib import Path

REPLACEMENTS = 500
OLD, NEW = list(range(300)), [None] * 200


def test_during_five_hundred_replacements_a_reader_sees_the_old_content_or_the_new(
    memory: Path, protocol: str
) -> None:
    store = a_store(memory / "store", protocol=protocol)
    publish(store, [JFK], OLD)
    is_over, end = os.pipe()
    gate = Gate()

    def read_on() -> tuple[int, int]:
        os.close(end)
        os.set_blocking(is_over, False)
        gate.wait()
        seen = {300: 0, 200: 0}
        while not _has_ended(is_over):
            values = store.read(JFK).column("value").to_pylist()
            assert values in (OLD, NEW)
            seen[len(values)] += 1
            assert store.verify(JFK).rows in (200, 300)  # record and rows of one moment
            assert JFK in store.scan(FLIGHTS).committed
            assert store.records([JFK])[JFK].rows in (200, 300)
        return seen[300], seen[200]

    with child(read_on) as reader:
        gate.open()
        with store.attempt("run") as attempt:
            for number in range(REPLACEMENTS):
                attempt.stage(JFK, rows_of(JFK, OLD if number % 2 else NEW))
                (published,) = attempt.publish(replace=True)
                assert not published.adopted
        os.close(end)
        os.close(is_over)
        old, new = reader.answer()

    assert old > 10
    assert new > 10


def _has_ended(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False
