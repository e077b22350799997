"""The idempotency log, beside a bare ``INSERT … ON CONFLICT`` of the same rows in the same tables.

The bare one writes when the log writes: a row and its attempt when the work begins, and again when
it is done. It asks nothing: not who owns the operation, not whether the payload is the same.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from backfill_assets.core.operations import Claimed, Done, Kind, Operation
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.log.results import canonical, digest, fingerprint
from backfill_assets.stores.log.schema import prepare_schema
from backfill_assets.stores.sql import load_statements
from backfill_assets_tests.benchmarks.measuring import Figure, each, in_turns, within
from backfill_assets_tests.stores.children import child

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets_tests.benchmarks.bench import Bench

_STATEMENTS = load_statements("backfill_assets_tests.benchmarks", "log.sql")
_NUMBERS = itertools.count()

OPERATION = Operation(name="bench", kind=Kind.ARTIFACT)
LEASE = timedelta(minutes=1)
WRITERS = 8
ROUNDS = 15  # many and short: whatever else the machine does then meets both
CHECKED = 1_000  # keys of one duplicate check: a group that a run takes up


class Writer(Protocol):
    """Writes the rows of operations."""

    def do(self, keys: list[str]) -> None:
        """Begin operations, and end them."""
        ...

    def check(self, keys: list[str]) -> None:
        """Ask for operations that are done."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def run(bench: Bench) -> list[Figure]:
    """Compare on a few thousand operations, or on a few."""
    url = bench.workshop.clone("log and bare", prepare)
    rounds = 1 if bench.small else ROUNDS
    figures = [duplicate_checks(url, checks=1 if bench.small else 10, rounds=rounds)]
    for batch, operations in ((1, 100), (100, 1_000)):
        for writers in (1, WRITERS):
            per_writer = batch if bench.small else operations
            figures.append(writing(url, batch, writers, per_writer, rounds))
    return figures


def prepare(url: str) -> None:
    """Make the log's tables, and bare ones like them."""
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)
        connection.execute(_STATEMENTS["make_bare_log"])
        connection.execute(_STATEMENTS["make_bare_attempt"])


def duplicate_checks(url: str, *, checks: int, rounds: int) -> Figure:
    """Compare asking for what is done."""
    keys = new_keys(CHECKED)
    writers: dict[str, Writer] = {"product": Logged(url), "bare": Bare(url)}
    for writer in writers.values():
        writer.do(keys)

    def ask(writer: Writer) -> None:
        for _ in range(checks):
            writer.check(keys)

    seconds = in_turns({name: lambda w=w: ask(w) for name, w in writers.items()}, rounds=rounds)  # type: ignore[misc]
    for writer in writers.values():
        writer.close()
    return figure(f"a duplicate, told in batches of {CHECKED:,}", seconds, checks * CHECKED)


def writing(url: str, batch: int, writers: int, operations: int, rounds: int) -> Figure:
    """Compare claiming and completing, with every writer in a process of its own."""

    def candidate(kind: Callable[[str], Writer]) -> Callable[[], float]:
        return lambda: together(lambda: kind(url), writers, batch, operations)

    seconds = in_turns({"product": candidate(Logged), "bare": candidate(Bare)}, rounds=rounds)
    size = "one by one" if batch == 1 else f"in batches of {batch}"
    crowd = "alone" if writers == 1 else f"{writers} writers at once"
    return figure(
        f"an operation claimed and completed {size}, {crowd}", seconds, writers * operations
    )


def together(new: Callable[[], Writer], writers: int, batch: int, operations: int) -> float:
    """Have writers work at the same time; return the seconds from the first to the last."""
    all_are_ready = multiprocessing.get_context("fork").Barrier(writers)
    shares = [new_keys(operations) for _ in range(writers)]
    warm_up = [new_keys(batch) for _ in range(writers)]

    def work(number: int) -> tuple[float, float]:
        writer = new()
        writer.do(warm_up[number])  # connects
        all_are_ready.wait()
        began = time.monotonic()
        keys = shares[number]
        for first in range(0, len(keys), batch):
            writer.do(keys[first : first + batch])
        return began, time.monotonic()

    with ExitStack() as stack:
        running = [stack.enter_context(child(lambda n=n: work(n))) for n in range(writers)]  # type: ignore[misc]
        times = [one.answer() for one in running]
    return max(end for _, end in times) - min(began for began, _ in times)


def figure(what: str, seconds: dict[str, list[float]], parts: int) -> Figure:
    """Return a line of the table, in microseconds an operation."""
    return Figure(
        what=what,
        unit="µs an operation",
        product=each(seconds["product"], parts, factor=1e6),
        against="a bare INSERT … ON CONFLICT of the same rows",
        other=each(seconds["bare"], parts, factor=1e6),
        goal=within(1.5),
    )


def new_keys(count: int) -> list[str]:
    """Return keys that nobody has used."""
    number = next(_NUMBERS)
    return [f"{number}/carrier/departures/2013-08-03|{part:05}" for part in range(count)]


class Logged:
    """The product."""

    def __init__(self, url: str) -> None:
        self._log = IdempotencyLog(lambda: url, worker="bench", clock=lambda: datetime.now(UTC))

    def do(self, keys: list[str]) -> None:
        """Claim and complete."""
        claims = self._log.claim_many(OPERATION, {key: {"key": key} for key in keys})
        attempts = [claim.attempt for claim in claims.values() if isinstance(claim, Claimed)]
        assert len(attempts) == len(keys)
        assert not self._log.complete_many({attempt: attempt.key for attempt in attempts})

    def check(self, keys: list[str]) -> None:
        """Claim what is done."""
        claims = self._log.claim_many(OPERATION, {key: {"key": key} for key in keys})
        assert all(isinstance(claim, Done) for claim in claims.values())

    def close(self) -> None:
        """Close the connection."""
        self._log.close()


@dataclass
class Bare:
    """What anybody would write."""

    url: str

    def __post_init__(self) -> None:
        self._connection = psycopg.connect(self.url, autocommit=True)

    def do(self, keys: list[str]) -> None:
        """Write that it begins, and that it is done."""
        values = self._values(keys)
        results = [canonical(key) for key in keys]
        self._connection.execute(_STATEMENTS["begin"], values)
        self._connection.execute(
            _STATEMENTS["end"],
            values | {"results": results, "digests": [digest(text) for text in results]},
        )

    def check(self, keys: list[str]) -> None:
        """Write what is there already."""
        new = self._connection.execute(_STATEMENTS["try_again"], self._values(keys)).fetchall()
        assert not new

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _values(self, keys: list[str]) -> dict[str, Any]:
        now = datetime.now(UTC)
        return {
            "keys": keys,
            "fingerprints": [fingerprint({"key": key}) for key in keys],
            "claim": uuid.uuid4(),
            "now": now,
            "lease_until": now + LEASE,
        }
