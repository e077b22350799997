"""Which data sets and sagas the project has, and the project that this process's settings describe.

To put your own data in, write a catalogue and a source, and name them here.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache

from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.itinerary.definition import BOOK_ITINERARY
from backfill_assets.flights.itinerary.itineraries import Itineraries
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets.flights.source import FlightsSource
from backfill_assets.resources.clock import RealClock, make_clock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.resources.release_desk import open_release_desk, with_releases
from backfill_assets.resources.saga_desk import open_saga_desk
from backfill_assets.resources.settings import (
    Settings,
    log_database_url,
    settings,
    source_database_url,
)
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets.stores.publishing_log import PublishingLog
from backfill_assets.stores.sagas.actions import SagaRegistry

SCORING = Scoring(
    source_url=source_database_url,
    log_url=log_database_url,
    folder=ModelFolder(lambda: settings().models),
    address=lambda: settings().model_server_address,
    worker=lambda: f"{socket.gethostname()}:{os.getpid()}",
    clock=RealClock().now,
)

DATA_SETS = (
    DataSet(
        FLIGHTS,
        FlightsSource(source_database_url),
        load=lambda: load_flights(source_database_url()),
    ),
    DataSet(FLIGHT_MODELS, ScoredFlights(SCORING)),  # of the flights that the first one loads
)

ITINERARIES = Itineraries(
    source_url=source_database_url,
    log_url=log_database_url,
    partner_address=lambda: settings().hotel_partner_address,
    clock=RealClock().now,
)

SAGAS = SagaRegistry(
    definitions=(BOOK_ITINERARY,), do=ITINERARIES.steps.do, undo=ITINERARIES.steps.undo
)


@lru_cache(maxsize=1)
def project() -> Project:
    """Return this process's project. Nothing is opened, started or connected to yet."""
    return project_of(settings())


def project_of(chosen: Settings) -> Project:
    """Return the project that some settings describe."""
    store = LocalPartitionStore(
        chosen.store_root,
        [data_set.catalogue for data_set in DATA_SETS],
        file_format=chosen.file_format,
        commit_protocol=chosen.commit_protocol,
    )
    releases = open_release_desk(
        log_database_url,
        store,
        [data_set.catalogue for data_set in DATA_SETS],
        clock=RealClock().now,
        subscribers=chosen.subscribers,
    )
    return Project(
        data_sets=DATA_SETS,
        store=store,
        clock=make_clock(chosen.clock, chosen.home / "clock.json"),
        publishing_log=PublishingLog(log_database_url, RealClock().now),
        bounds=chosen.bounds,
        runs_in_flight=chosen.runs_in_flight,
        tick_seconds=chosen.tick_seconds,
        saga_desk=open_saga_desk(
            log_database_url,
            with_releases(SAGAS, releases),
            clock=RealClock().now,
            webhook=chosen.alert_webhook,
        ),
        release_desk=releases,
    )
