"""All definitions of a project, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.defs.assets import IO_MANAGER, partition_assets
from backfill_assets.defs.checks import log_check, partition_checks
from backfill_assets.defs.coverage import coverage_asset
from backfill_assets.defs.jobs import partition_jobs
from backfill_assets.defs.model_pipeline import PIPELINE
from backfill_assets.defs.models import model_definitions
from backfill_assets.defs.operations import operation_jobs
from backfill_assets.defs.parts import Part
from backfill_assets.defs.releases import release_jobs, release_sensor
from backfill_assets.defs.reports import reports
from backfill_assets.defs.sagas import saga_definitions
from backfill_assets.defs.sensors import missing_partitions_sensor
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.resources.partition_io_manager import partition_io_manager
from backfill_assets.resources.release_desk import releasing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill_assets.resources.project import Project


def build_definitions(project: Project, more: Sequence[Part] = ()) -> dg.Definitions:
    """Return the definitions of a project; nothing is opened, started or connected to.

    Args:
        more: What a business adds by itself.
    """
    models = model_definitions(project)
    looked_at = {FLIGHT_MODELS.name: [PIPELINE]} if models.assets else {}
    jobs = {c.name: partition_jobs(c, looked_at.get(c.name, [])) for c in project.catalogues}
    parts = [models, _sagas(project), _releases(project), *more]
    return dg.Definitions(
        assets=[
            *partition_assets(project),
            *(coverage_asset(project, catalogue) for catalogue in project.catalogues),
            *reports(project),
            *(asset for part in parts for asset in part.assets),
        ],
        asset_checks=[
            *(partition_checks(project, catalogue) for catalogue in project.catalogues),
            *(log_check(project, catalogue) for catalogue in project.catalogues),
            *(check for part in parts for check in part.checks),
        ],
        jobs=[
            *(job for each in jobs.values() for job in each),
            *operation_jobs(project),
            *(job for part in parts for job in part.jobs),
        ],
        sensors=[
            *(missing_partitions_sensor(project, c, jobs[c.name]) for c in project.catalogues),
            *(sensor for part in parts for sensor in part.sensors),
        ],
        resources={IO_MANAGER: partition_io_manager(project)},
        # A process for each step would cost seconds; a run has a few steps of many partitions.
        executor=dg.in_process_executor,
    )


def _sagas(project: Project) -> Part:
    if project.saga_desk is None:
        return Part()
    return saga_definitions(project.saga_desk, project.tick_seconds)


def _releases(project: Project) -> Part:
    releasing = releasing_of(project)
    if releasing is None:
        return Part()
    return Part(
        jobs=release_jobs(releasing),
        sensors=[release_sensor(releasing, catalogue) for catalogue in project.catalogues],
    )
