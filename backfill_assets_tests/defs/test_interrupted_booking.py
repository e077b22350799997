"""A run that books an itinerary is killed, or terminated; the journey is booked all the same.

The run is executed as Dagster's code server does it, in a process of its own. The clock of sagas
stands still until a test moves it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest

from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.itinerary import EXAMPLE, book_itinerary_job
from backfill_assets.defs.sagas import saga_definitions
from backfill_assets.flights.itinerary.definition import (
    BOOK_ITINERARY,
    PARTNER_TIMEOUT,
    WRITE_TIMEOUT,
)
from backfill_assets.flights.itinerary.itineraries import Itineraries
from backfill_assets.flights.load import load_flights
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.stores.http_serving import write_address
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets.stores.sagas.driver import GRACE
from backfill_assets_tests.defs.run_worker import RunWorker, running
from backfill_assets_tests.flights.itinerary.conftest import databases, world
from backfill_assets_tests.flights.itinerary.endings import SAGA, check_rest
from backfill_assets_tests.flights.itinerary.journeys import PRICES, World
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.stores.sagas.trip import raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from backfill_assets_tests.postgres_fixtures import Workshop

__all__ = ["databases", "world"]

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

FORM = {"ops": {"book": {"config": EXAMPLE | {"booking": "1"}}}}
STARTED, CANCELED = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELED
# The flights go at the same time, and so do the hotels; the longest step decides about the lease.
POINTS = {
    "first_flight.do.before": WRITE_TIMEOUT,
    "return_flight.do.after": WRITE_TIMEOUT,
    "first_hotel.do.before": PARTNER_TIMEOUT,
    "second_hotel.do.after": PARTNER_TIMEOUT,
}


class Office:
    """The jobs and sensors of the itineraries, as each process has them for itself."""

    def __init__(
        self, world: World, itineraries: Itineraries, instance: dg.DagsterInstance
    ) -> None:
        self.world = world
        self.instance = instance
        self._itineraries = itineraries
        self.desk = self._desk("this process")
        self.definitions = self._definitions(self.desk)

    def _desk(self, worker: str) -> SagaDesk:
        world = self.world
        delivery = AlertDelivery(lambda: world.url, [], worker=worker, clock=world.clock)
        return SagaDesk(world.sagas(worker), delivery, world.clock)

    def _definitions(self, desk: SagaDesk) -> dg.Definitions:
        made = saga_definitions(desk, 10)
        return dg.Definitions(
            assets=made.assets,
            asset_checks=made.checks,
            jobs=[*made.jobs, book_itinerary_job(desk, self._itineraries)],
            sensors=made.sensors,
            executor=dg.in_process_executor,
        )

    def booking(self) -> AbstractContextManager[RunWorker]:
        """Have a run in a process of its own book a journey."""
        job = self._definitions(self._desk("a run")).resolve_job_def(BOOK_ITINERARY.name)
        return running(self.instance, job, FORM)

    def book(self) -> bool:
        job = self.definitions.resolve_job_def(BOOK_ITINERARY.name)
        return job.execute_in_process(FORM, instance=self.instance).success

    def look(self) -> list[dg.RunRequest]:
        """Do what the supervising sensor does; return the runs that it asks for."""
        sensor = self.definitions.resolve_sensor_def("saga_supervising_sensor")
        with dg.build_sensor_context(instance=self.instance) as context:
            return list(sensor.evaluate_tick(context).run_requests or ())

    def execute(self, request: dg.RunRequest) -> bool:
        job = self.definitions.resolve_job_def(str(request.job_name))
        result = job.execute_in_process(
            run_config=request.run_config, tags=dict(request.tags), instance=self.instance
        )
        return result.success


def load(url: str) -> None:
    load_flights(url)


@pytest.fixture
def office(
    world: World, workshop: Workshop, instance: dg.DagsterInstance, tmp_path: Path
) -> Iterator[Office]:
    source, address = workshop.clone("flights", load), tmp_path / "hotel-partner.json"
    write_address(address, world.partner.url)
    itineraries = Itineraries(lambda: source, lambda: world.url, lambda: address, world.clock)
    made = Office(world, itineraries, instance)
    yield made
    made.desk.close()
    workshop.drop(source)


def signalling(number: int) -> Callable[[], object]:
    return lambda: os.kill(os.getpid(), number)


def killed(office: Office, point: str) -> dg.DagsterRunStatus:
    """Kill the process of a run at a point; return what Dagster thinks of the run."""
    office.world.hooks[point] = [signalling(signal.SIGKILL)]
    with office.booking() as worker:
        assert worker.process.exit_code() == -signal.SIGKILL
        office.world.hooks.clear()
        return worker.status


def terminated(office: Office, point: str) -> dg.DagsterRunStatus:
    """Terminate a run at a point; return what Dagster thinks of the run."""
    office.world.hooks[point] = [signalling(signal.SIGSTOP)]
    with office.booking() as worker:
        worker.terminate_when_stopped()
        assert worker.process.exit_code() == 0
        office.world.hooks.clear()
        return worker.status


def go_on_by_sensor(office: Office) -> None:
    assert office.look() == []  # its lease still runs
    office.world.clock.pass_by(minutes=1)
    (request,) = office.look()
    assert request.run_config == {"ops": {"drive": {"config": {"saga": SAGA}}}}
    assert office.execute(request)


def go_on_by_the_same_form(office: Office) -> None:
    assert office.book()  # waits for the lease


def everything_is_booked_once(world: World, office: Office) -> None:
    assert office.desk.sagas.get(SAGA).status is SagaStatus.COMPLETED
    check_rest(world, office.desk.sagas)
    assert world.execute("SELECT count(*) FROM itinerary.seat") == [(3,)]
    assert world.execute("SELECT count(*) FROM hotels.stay") == [(1,)]
    assert world.execute_at_partner("SELECT count(*) FROM hotels.stay") == [(1,)]
    payments = [
        *world.execute("SELECT cents FROM itinerary.payment"),
        *world.execute("SELECT cents FROM hotels.payment"),
        *world.execute_at_partner("SELECT cents FROM hotels.payment"),
    ]
    assert sorted(cents for (cents,) in payments) == sorted(PRICES.values())
    assert office.look() == []


@pytest.mark.parametrize("go_on", [go_on_by_sensor, go_on_by_the_same_form])
@pytest.mark.parametrize("point", POINTS)
def test_a_booking_whose_run_was_killed_goes_on_and_everything_is_booked_once(
    world: World, office: Office, point: str, go_on: Callable[[Office], None]
) -> None:
    assert killed(office, point) is STARTED
    saga = office.desk.sagas.get(SAGA)
    assert (saga.status, saga.due_at) == (
        SagaStatus.RUNNING,
        world.clock() + POINTS[point] + GRACE,
    )

    go_on(office)

    everything_is_booked_once(world, office)


@pytest.mark.parametrize("go_on", [go_on_by_sensor, go_on_by_the_same_form])
@pytest.mark.parametrize("point", POINTS)
def test_a_booking_whose_run_was_terminated_goes_on_and_its_locks_do_not_outlive_their_lease(
    world: World, office: Office, point: str, go_on: Callable[[Office], None]
) -> None:
    """Terminating a run is no cancellation: the journey is taken back by ``cancel_saga``."""
    assert terminated(office, point) is CANCELED
    ((free_at,),) = world.execute("SELECT max(expires_at) FROM saga_lock")
    assert free_at == world.clock() + POINTS[point] + GRACE

    go_on(office)

    everything_is_booked_once(world, office)


def test_a_journey_whose_run_was_terminated_can_be_taken_back_at_once(
    world: World, office: Office
) -> None:
    assert terminated(office, "first_hotel.do.before") is CANCELED

    office.desk.cancel(SAGA, who="ada", why="terminated by mistake")
    assert office.desk.drive(SAGA).status is SagaStatus.COMPENSATED

    check_rest(world, office.desk.sagas)


def test_a_run_that_waits_for_the_database_is_terminated_as_well(
    world: World, office: Office
) -> None:
    """The statement is cut off in the thread that drives the saga: its connection is good no more.

    The first try of the hotel fails, so that the second is made alone, and in that thread.
    """
    world.hooks["first_hotel.do.before"] = [raising(ConnectionError("down"))]
    with psycopg.connect(world.url) as other:
        other.execute("LOCK TABLE hotels.stay")
        with office.booking() as worker:
            wait_for("the hotel to wait", lambda: waits_for_a_lock(world), seconds=60)
            worker.terminate()
            assert worker.process.exit_code() == 0
            assert worker.status is CANCELED
    world.hooks.clear()

    go_on_by_sensor(office)

    everything_is_booked_once(world, office)


def waits_for_a_lock(world: World) -> bool:
    """Return whether somebody waits for our hotels, and the first try is over."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    failed = "SELECT 1 FROM idempotency_attempt WHERE error_type = 'ConnectionError'"
    return bool(world.execute(waiting) and world.execute(failed))
