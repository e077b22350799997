"""The form that books an itinerary, as Dagster runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.itinerary import EXAMPLE, book_itinerary_job
from backfill_assets.flights.itinerary.definition import BOOK_ITINERARY
from backfill_assets.flights.itinerary.itineraries import Itineraries
from backfill_assets.flights.load import load_flights
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.saga_desk import SagaDesk, open_saga_desk
from backfill_assets.stores.http_serving import write_address
from backfill_assets.stores.sagas.actions import SagaRegistry
from backfill_assets.stores.sagas.schema import prepare_schema
from backfill_assets_tests.flights.itinerary.journeys import prepare_partner
from backfill_assets_tests.flights.itinerary.partner_process import running_partner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import dagster as dg

    from backfill_assets_tests.postgres_fixtures import Workshop

SAGA = "book_itinerary/example-1"


class Office:
    """A desk with the job of the itineraries, and an instance without a server."""

    def __init__(self, desk: SagaDesk, itineraries: Itineraries) -> None:
        self.desk = desk
        self.job = book_itinerary_job(desk, itineraries)
        self.url = itineraries.log_url()

    def book(self, **changes: str) -> dg.ExecuteInProcessResult:
        config: dict[str, Any] = {"ops": {"book": {"config": EXAMPLE | changes}}}
        return self.job.execute_in_process(run_config=config, raise_on_error=False)

    def execute(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


def load(url: str) -> None:
    load_flights(url)


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        prepare_schema(connection)


@pytest.fixture
def office(
    workshop: Workshop, clone_database: Callable[..., str], tmp_path: Path
) -> Iterator[Office]:
    source = workshop.clone("flights", load)
    ours, partners = clone_database("empty sagas", prepare), clone_database("hp", prepare_partner)
    address = tmp_path / "hotel-partner.json"
    clock = RealClock().now
    itineraries = Itineraries(lambda: source, lambda: ours, lambda: address, clock)
    steps = itineraries.steps
    registry = SagaRegistry((BOOK_ITINERARY,), steps.do, steps.undo)
    desk = open_saga_desk(lambda: ours, registry, clock=clock)
    with running_partner(partners, clock) as partner:
        write_address(address, partner.url)
        yield Office(desk, itineraries)
        desk.close()


def case_of(result: dg.ExecuteInProcessResult) -> str:
    (step,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    metadata = step.step_output_data.metadata
    return str(metadata["case"].value)


def test_the_form_as_it_stands_books_a_journey_and_twice_is_once(office: Office) -> None:
    first, second = office.book(), office.book()

    assert first.success
    assert second.success
    assert office.desk.sagas.get(SAGA).status is SagaStatus.COMPLETED
    assert office.execute("SELECT count(*) FROM itinerary.seat WHERE state = 'booked'") == [(3,)]
    assert "made-up SFO-HNL" in case_of(first)


def test_a_full_hotel_waits_for_a_person_and_the_run_says_what_is_free(office: Office) -> None:
    office.book()  # opens the hotels of the city
    office.execute("UPDATE hotels.hotel SET rooms = 0 WHERE hotel = 'SFO Central'")

    result = office.book(booking="example-2", day="2013-09-03")

    assert result.success
    assert office.desk.sagas.get("book_itinerary/example-2").status is SagaStatus.AWAITING_DECISION
    assert "free in SFO: SFO Park (12 free" in case_of(result)


def test_the_fee_and_the_refund_stand_in_the_case_file(office: Office) -> None:
    office.book()
    office.desk.cancel(SAGA, who="ada", why="changed her mind")
    office.desk.drive(SAGA)

    steps = {s["step"]: s for s in office.desk.sagas.case_file(SAGA).facts()["steps"]}
    assert steps["onward_flight"]["undo_receipt"] == {"fee_cents": 2_490, "refund_cents": 22_410}
    assert "'fee_cents': 2490" in office.desk.sagas.case_file(SAGA).markdown()


def test_a_journey_that_cannot_be_had_fails_the_run_and_says_why(office: Office) -> None:
    office.book()
    office.execute("UPDATE itinerary.flight SET seats = taken WHERE is_made_up")

    result = office.book(booking="example-2")

    assert not result.success
    (failed,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    message = str(failed.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
    assert "nothing of book_itinerary/example-2 is booked: " in message
    assert "is full" in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flight": "ZZ1"}, "no flight 'ZZ1' left 'JFK'"),
        ({"day": "tomorrow"}, "day: "),
        ({"booking": "a/b"}, "booking: "),
    ],
)
def test_a_form_that_makes_no_sense_is_a_sentence(
    office: Office, changes: dict[str, str], said: str
) -> None:
    result = office.book(**changes)

    (failed,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    message = str(failed.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
    assert said in message
    assert office.desk.sagas.find() == []
