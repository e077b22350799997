"""A small world with something of every kind in it, and a saga that changes it.

A seat and a credit are rows of the log's database, a room is booked with a partner that keeps its
own books (a table that is written outside of every transaction of ours), and a voucher is a file.
Faults are put in at named points, and the world remembers which of them were reached.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from backfill_assets.core.errors import ConflictError, NotAppliedError
from backfill_assets.core.operations import Found, Kind
from backfill_assets.core.sagas import OnFailure, Retries, SagaDefinition, Step
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.sagas.actions import SagaRegistry
from backfill_assets.stores.sagas.sagas import Sagas
from backfill_assets.stores.sagas.schema import prepare_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backfill_assets.core.operations import Json
    from backfill_assets.stores.sagas.actions import DoCall, UndoCall
    from backfill_assets.stores.sagas.rows import Saga

START = datetime(2013, 8, 3, 12, tzinfo=UTC)
TIMEOUT = timedelta(seconds=20)
QUICK = Retries(max_attempts=3, first_wait=timedelta(seconds=1), jitter=0)
STEPS = ("seat", "room", "credit", "voucher")
ARGUMENTS: dict[str, Json] = {
    "seat": {"flight": "UA1"},
    "room": {"hotel": "Ritz"},
    "credit": {"miles": 500},
    "voucher": {"text": "one dinner"},
}

TABLES = """
CREATE TABLE seat (flight text PRIMARY KEY, holder text, meal text NOT NULL, changes int NOT NULL);
CREATE TABLE account (miles int NOT NULL);
CREATE TABLE charge (saga text PRIMARY KEY);
CREATE TABLE partner (key text PRIMARY KEY, hotel text NOT NULL, state text NOT NULL,
                      booked int NOT NULL, cancelled int NOT NULL);
CREATE TABLE reached (point text NOT NULL, at bigint GENERATED ALWAYS AS IDENTITY);
INSERT INTO seat VALUES ('UA1', NULL, 'none', 0), ('UA2', NULL, 'none', 0);
INSERT INTO account VALUES (1000);
"""


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)
        connection.execute(TABLES)


class Clock:
    """A clock that moves when it is told to, or when somebody sleeps by it."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start

    def __call__(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


def step(name: str, kind: Kind, **more: Any) -> Step:
    values: dict[str, Any] = {"retries": QUICK, "undo_retries": QUICK, "timeout": TIMEOUT}
    undo = None if kind is Kind.IRREVERSIBLE else f"undo_{name}"
    return Step(name=name, kind=kind, do=f"do_{name}", undo=undo, **values | more)


TRIP = SagaDefinition(
    name="trip",
    steps=(
        step("seat", Kind.TRANSACTIONAL, locks=("seat/{flight}",)),
        step("room", Kind.REMOTE, after=("seat",), is_deduplicated=True),
        step("credit", Kind.TRANSACTIONAL, after=("seat",)),
        step("voucher", Kind.ARTIFACT, after=("room", "credit")),
    ),
)
ASKING = SagaDefinition(name="asking", steps=TRIP.steps, on_failure=OnFailure.ASK)
PAID = SagaDefinition(
    name="paid",
    steps=(
        step("seat", Kind.TRANSACTIONAL, locks=("seat/{flight}",)),
        step("charge", Kind.IRREVERSIBLE, after=("seat",)),
        step(
            "room",
            Kind.REMOTE,
            after=("charge",),
            is_deduplicated=True,
            on_failure=OnFailure.FORWARD_ONLY,
        ),
    ),
)
DEFINITIONS = (TRIP, ASKING, PAID)


@dataclass
class World:
    """What sagas change, and where faults are put in.

    Attributes:
        hooks: What happens at a point such as ``room.do.after``, one for each time it is reached.
    """

    url: str
    folder: Path
    clock: Clock = field(default_factory=Clock)
    hooks: dict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    definitions: tuple[SagaDefinition, ...] = DEFINITIONS
    opened: list[Sagas] = field(default_factory=list)

    def sagas(self, worker: str = "one", **changes: Any) -> Sagas:
        """Return what a process would have: connections and a log of its own."""
        registry = changes.pop("registry", None) or self.registry()
        log = changes.pop("log", None) or self.log(worker)
        made = changes.pop("made_by", Sagas)(
            lambda: self.url,
            log,
            registry,
            worker=worker,
            clock=self.clock,
            sleep=self.clock.sleep,
            chance=lambda: 0.0,
        )
        self.opened.append(made)
        return made

    def log(self, worker: str = "one") -> IdempotencyLog:
        return IdempotencyLog(
            lambda: self.url, worker=worker, clock=self.clock, sleep=self.clock.sleep
        )

    def registry(self, *, without: str = "") -> SagaRegistry:
        steps = (*STEPS, "charge")
        do = {f"do_{name}": getattr(self, f"do_{name}") for name in steps}
        undo = {f"undo_{name}": getattr(self, f"undo_{name}") for name in STEPS}
        if not without:
            return SagaRegistry(self.definitions, do, undo)
        do.pop(without, None)
        undo.pop(without, None)
        return SagaRegistry((), do, undo)  # a deployment that lost the definitions as well

    def at(self, point: str) -> None:
        """Reach a point; it is written down outside of every transaction."""
        self.execute("INSERT INTO reached (point) VALUES (%s)", point)
        if self.hooks[point]:
            self.hooks[point].pop(0)()

    def reached(self) -> list[str]:
        return [point for (point,) in self.execute("SELECT point FROM reached ORDER BY at")]

    def execute(self, statement: str, *values: object) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    # What the steps do.

    def do_seat(self, call: DoCall) -> Json:
        self.at("seat.do.before")
        flight = arguments(call)["flight"]
        taken = call.connection.execute(
            "UPDATE seat SET holder = %s, meal = 'fish', changes = changes + 1"
            " WHERE flight = %s AND holder IS NULL RETURNING changes",
            [call.saga, flight],
        ).fetchall()
        if not taken:
            raise NotAppliedError(f"{flight} is full")
        self.at("seat.do.after")
        return {"flight": flight, "meal": "fish"}

    def undo_seat(self, call: UndoCall) -> Json:
        self.at("seat.undo.before")
        flight = arguments(call)["flight"]
        given = call.connection.execute(
            "UPDATE seat SET holder = NULL, meal = 'none', changes = changes + 1"
            " WHERE flight = %s AND holder = %s AND meal = 'fish' RETURNING 1",
            [flight, call.saga],
        ).fetchall()
        if not given:
            row = call.connection.execute(
                "SELECT holder, meal FROM seat WHERE flight = %s", [flight]
            ).fetchone()
            assert row is not None
            evidence: Json = {"wrote": [call.saga, "fish"], "found": list(row)}
            raise ConflictError(f"seat {flight} was changed by somebody else", evidence)
        self.at("seat.undo.after")
        return None

    def do_credit(self, call: DoCall) -> Json:
        self.at("credit.do.before")
        call.connection.execute("UPDATE account SET miles = miles + %s", [arguments(call)["miles"]])
        self.at("credit.do.after")
        return None

    def undo_credit(self, call: UndoCall) -> Json:
        self.at("credit.undo.before")
        call.connection.execute("UPDATE account SET miles = miles - %s", [arguments(call)["miles"]])
        self.at("credit.undo.after")
        return None

    def do_room(self, call: DoCall) -> Json:
        self.at("room.do.before")
        answer = self.book(call.attempt.remote_key, arguments(call)["hotel"])
        self.at("room.do.after")
        return answer

    def undo_room(self, call: UndoCall) -> Json:
        self.at("room.undo.before")
        self.cancel_booking(call.do_key, arguments(call)["hotel"])
        self.at("room.undo.after")
        return {"fee": 20}

    def do_voucher(self, call: DoCall) -> Json:
        self.at("voucher.do.before")
        draft = self.folder / uuid.uuid4().hex
        draft.write_text(str(arguments(call)["text"]))
        target = self.voucher(call.saga)
        try:
            os.link(draft, target)
        except FileExistsError:
            if target.read_text() == "void":
                raise NotAppliedError("the voucher was made void") from None
        self.at("voucher.do.after")
        return {"path": target.name}

    def undo_voucher(self, call: UndoCall) -> Json:
        self.at("voucher.undo.before")
        draft = self.folder / uuid.uuid4().hex
        draft.write_text("void")  # what stands there keeps a late one out
        draft.replace(self.voucher(call.saga))
        self.at("voucher.undo.after")
        return None

    def do_charge(self, call: DoCall) -> Json:
        self.at("charge.do.before")
        self.execute("INSERT INTO charge VALUES (%s)", call.saga)  # twice would fail
        self.at("charge.do.after")
        return {"charged": True}

    # The partner, who has books of their own.

    def book(self, key: str, hotel: str) -> Json:
        ((state,),) = self.execute(
            "INSERT INTO partner AS known VALUES (%s, %s, 'booked', 1, 0)"
            " ON CONFLICT (key) DO UPDATE SET hotel = known.hotel RETURNING state",
            key,
            hotel,
        )
        if state == "cancelled":
            raise NotAppliedError(f"{key} was cancelled before it came")
        return {"room": 7}

    def cancel_booking(self, key: str, hotel: str) -> None:
        self.execute(
            "INSERT INTO partner AS known VALUES (%s, %s, 'cancelled', 0, 0)"
            " ON CONFLICT (key) DO UPDATE SET state = 'cancelled', cancelled = known.cancelled"
            " + CASE known.state WHEN 'booked' THEN 1 ELSE 0 END",
            key,
            hotel,
        )

    def voucher(self, saga: str) -> Path:
        return self.folder / saga.replace("/", "-")

    def applied(self, saga: str) -> set[str]:
        """Return the steps of which something is left in the world."""
        found = set()
        if self.execute("SELECT 1 FROM seat WHERE holder = %s", saga):
            found.add("seat")
        if self.execute("SELECT 1 FROM partner WHERE key LIKE %s AND state = 'booked'", f"%{saga}"):
            found.add("room")
        if self.execute("SELECT 1 FROM account WHERE miles <> 1000"):
            found.add("credit")
        if self.voucher(saga).exists() and self.voucher(saga).read_text() != "void":
            found.add("voucher")
        return found

    def effects(self) -> dict[str, int]:
        """Return how often things really changed: seats, miles, bookings, cancellations."""
        ((seats, miles, booked, cancelled),) = self.execute(
            "SELECT (SELECT sum(changes) FROM seat), (SELECT miles FROM account),"
            " (SELECT coalesce(sum(booked), 0) FROM partner),"
            " (SELECT coalesce(sum(cancelled), 0) FROM partner)"
        )
        return {"seats": seats, "miles": miles, "booked": booked, "cancelled": cancelled}

    def start(self, sagas: Sagas, name: str = "trip", key: str = "1", **changes: Json) -> Saga:
        names = [s.name for s in next(d for d in self.definitions if d.name == name).steps]
        values = {n: ARGUMENTS.get(n) for n in names} | changes
        return sagas.start(name, key, values, who="ada")


def arguments(call: DoCall | UndoCall) -> Any:
    return call.arguments


def raising(error: BaseException) -> Callable[[], object]:
    """Return what raises an error each time."""

    def fail() -> object:
        raise error

    return fail


def found(receipt: Json) -> Found:
    return Found(receipt)
