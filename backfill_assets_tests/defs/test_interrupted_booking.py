"""A run that books an itinerary is killed, or terminated; the journey is booked all the same.

The run is executed as Dagster's code server does it, in a process of its own. The clock of sagas
stands still until a test moves it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.itinerary import EXAMPLE, book_itinerary_job
from backfill_assets.defs.sagas import saga_definitions
from backfill_assets.flights.itinerary.definition import PARTNER_TIMEOUT, WRITE_TIMEOUT
from backfill_assets.flights.itinerary.itineraries import Itineraries
from backfill_assets.flights.load import load_flights
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.stores.http_serving import write_address
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets.stores.sagas.driver import GRACE
from backfill_assets_tests.defs.run_worker import running
from backfill_assets_tests.flights.itinerary.conftest import databases, world
from backfill_assets_tests.flights.itinerary.endings import SAGA, check_rest
from backfill_assets_tests.flights.itinerary.journeys import PRICES, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    """The jobs and sensors of the itineraries, and what a process would have of them."""

    def __init__(
        self, world: World, itineraries: Itineraries, instance: dg.DagsterInstance
    ) -> None:
        self.world = world
        self.instance = instance
        delivery = AlertDelivery(lambda: world.url, [], worker="one", clock=world.clock)
        self.desk = SagaDesk(world.sagas("this process"), delivery, world.clock)
        made = saga_definitions(self.desk, 10)
        self.definitions = dg.Definitions(
            assets=made.assets,
            asset_checks=made.checks,
            jobs=[*made.jobs, book_itinerary_job(self.desk, itineraries)],
            sensors=made.sensors,
            executor=dg.in_process_executor,
        )
        self.job = self.definitions.resolve_job_def("book_itinerary")

    def book(self) -> bool:
        result = self.job.execute_in_process(FORM, instance=self.instance, raise_on_error=False)
        return result.success

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


def raising(number: int) -> Callable[[], object]:
    return lambda: os.kill(os.getpid(), number)


def killed(office: Office, point: str) -> dg.DagsterRunStatus:
    """Kill the process of a run at a point; return what Dagster thinks of the run."""
    office.world.hooks[point] = [raising(signal.SIGKILL)]
    with running(office.instance, office.job, FORM) as worker:
        assert worker.process.exit_code() == -signal.SIGKILL
        office.world.hooks.clear()
        return worker.status


def terminated(office: Office, point: str) -> dg.DagsterRunStatus:
    """Terminate a run at a point; return what Dagster thinks of the run."""
    office.world.hooks[point] = [raising(signal.SIGSTOP)]
    with running(office.instance, office.job, FORM) as worker:
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
