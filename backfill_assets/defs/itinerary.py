"""The job that books an itinerary: a form in the launchpad, and a saga that outlives its run."""

from contextlib import closing

import dagster as dg

from backfill_assets.core.sagas import SagaStatus
from backfill_assets.defs.parts import Part
from backfill_assets.defs.sagas import show_saga
from backfill_assets.flights.itinerary.definition import BOOK_ITINERARY
from backfill_assets.flights.itinerary.itineraries import Itineraries
from backfill_assets.flights.itinerary.requests import ItineraryRequest
from backfill_assets.resources.launchpad import errors_in_words, form
from backfill_assets.resources.project import Project
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.stores.sagas.rows import Saga

EXAMPLE = {
    "booking": "example-1",
    "traveller": "Ada",
    "flight": "UA303",
    "origin": "JFK",
    "day": "2013-08-03",
    "onward_to": "HNL",
}


def itinerary_definitions(project: Project, itineraries: Itineraries) -> Part:
    """Return the job; none for a project without sagas."""
    if project.saga_desk is None:
        return Part()
    return Part(jobs=[book_itinerary_job(project.saga_desk, itineraries)])


def book_itinerary_job(desk: SagaDesk, itineraries: Itineraries) -> dg.JobDefinition:
    """Return the job that books an itinerary.

    Its run starts the saga and drives it. A run that is killed, or terminated, leaves the saga to
    the supervising sensor once its lease is over; the same form again takes it up as well.
    """

    @dg.op(config_schema=_fields(), out=dg.Out(dg.Nothing))
    def book(context: dg.OpExecutionContext) -> None:
        with closing(desk), errors_in_words():
            saga = itineraries.start(desk.sagas, context.op_config, who="launchpad")
            saga = desk.drive(saga.saga_id)
            show_saga(context, desk, saga)
            if saga.status is SagaStatus.COMPENSATED:
                raise _nothing_booked(desk, saga)

    @dg.job(
        name=BOOK_ITINERARY.name,
        description=(
            f"{BOOK_ITINERARY.description} Where a hotel is full, a person decides with the job "
            "decide_saga; the job cancel_saga takes the whole journey back, for a fee."
        ),
        config=form("book", **EXAMPLE),
    )
    def book_itinerary() -> None:
        book()

    return book_itinerary


def _nothing_booked(desk: SagaDesk, saga: Saga) -> dg.Failure:
    case = desk.sagas.case_file(saga.saga_id)
    reasons = [entry.why for entry in case.journal if entry.event in ("turned back", "cancelled")]
    return dg.Failure(
        f"nothing of {saga.saga_id} is booked: {'; '.join(reasons)}",
        metadata={"case": dg.MetadataValue.md(case.markdown())},
        allow_retries=False,
    )


def _fields() -> dict[str, dg.Field]:
    """Return the form: what may be left out is what the request leaves open."""
    return {
        name: dg.Field(str, description=info.description or "", is_required=True)
        if info.is_required()
        else dg.Field(str, description=info.description or "", default_value="")
        for name, info in ItineraryRequest.model_fields.items()
    }
