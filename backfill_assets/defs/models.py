"""The models of delay in Dagster: the asset that trains them, and the sensor that has it do so.

The scores themselves are partitions like any others; see ``assets``.
"""

from datetime import timedelta
from typing import Any

import dagster as dg

from backfill_assets.core.closing import ONE_DAY
from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.defs.flight_requests import score_flight_job
from backfill_assets.defs.model_pipeline import pipeline, pipeline_checks
from backfill_assets.defs.parts import Part
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.models.catalogue import FIRST_DAY, FLIGHT_MODELS, LAST_DAY
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets.resources.abandoned_runs import every_unfinished_run, fail_abandoned_runs
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.project import Project

TRAINED = dg.AssetKey([FLIGHT_MODELS.name, "trained_models"])
TRAINING_JOB = "train_flight_models"
TRAINING_PRIORITY = "-15"  # after the history of what is expected, before what is made again
PAUSE = timedelta(minutes=10)  # after a training that failed or was cancelled


def model_definitions(project: Project) -> Part:
    """Return the definitions; none for a project that has no models of flights."""
    sources = [d.source for d in project.data_sets if d.catalogue is FLIGHT_MODELS]
    if not sources or not isinstance(sources[0], ScoredFlights):
        return Part()
    scoring = sources[0].scoring
    training = dg.define_asset_job(
        TRAINING_JOB,
        selection=dg.AssetSelection.assets(TRAINED),
        description="Trains the models of delay from January to June 2013.",
        tags={"dagster/priority": TRAINING_PRIORITY},
    )
    return Part(
        assets=[trained_models(project, scoring), pipeline(scoring)],
        checks=[pipeline_checks(project, scoring)],
        jobs=[training, score_flight_job(scoring)],
        sensors=[model_training_sensor(project, scoring, training)],
    )


def trained_models(project: Project, scoring: Scoring) -> dg.AssetsDefinition:
    """Return the asset that trains the models and makes them the current ones."""

    @dg.asset(
        key=TRAINED,
        group_name=FLIGHT_MODELS.name,
        description=(
            "Two models that have learned from the flights and the weather of January to June: the "
            "risk of arriving half an hour late or later, and how unusual a flight is. The same "
            "data, recipe and libraries give the same version and the same scores."
        ),
        kinds={"scikitlearn"},
        # For the attempt that comes with it, whose lock tells whether the run is alive.
        required_resource_keys={IO_MANAGER},
    )
    def trained(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        if (open_days := _why_too_early(project)) is not None:
            raise dg.Failure(open_days, allow_retries=False)
        # Not at the top: every run of Dagster imports this, and few train.
        from backfill_assets.flights.models.training import (  # noqa: PLC0415
            area_under_curve,
            train,
        )

        models = scoring.folder.save(train(scoring.source_url()))
        card = models.card
        context.log.info(f"Models {card.version} are the current ones.")
        last = min(LAST_DAY, FLIGHTS.latest_closed_day(project.clock.now()))
        curve = area_under_curve(scoring.source_url(), models, FIRST_DAY, last)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(card.version),
            metadata={
                "version": card.version,
                "flights": card.flights,
                "late from, minutes": card.late_minutes,
                "area under curve": curve.get("all", 0.0),
                "area under curve by month": dg.MetadataValue.json(curve),
                "origin": dg.MetadataValue.json(dict(card.origin)),
                "path": dg.MetadataValue.path(str(scoring.folder.path(card.version))),
            },
        )

    return trained


def model_training_sensor(project: Project, scoring: Scoring, training: Any) -> dg.SensorDefinition:
    """Return the sensor that has the models trained once, after the flights are complete."""

    @dg.sensor(
        name="model_training_sensor",
        job=training,
        minimum_interval_seconds=project.tick_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Has the models trained when none are, their months have closed, and no day of flights "
            "is missing: the flights do not wait for them."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        reason = _why_not_trained_now(project, scoring, context.instance)
        if reason is not None:
            return dg.SensorResult(skip_reason=dg.SkipReason(reason))
        return dg.SensorResult(run_requests=[dg.RunRequest()])

    return sensor


def _why_not_trained_now(
    project: Project, scoring: Scoring, instance: dg.DagsterInstance
) -> str | None:
    current = scoring.folder.current()
    if current is not None:
        return f"Models {current.version} are the current ones."
    if (open_days := _why_too_early(project)) is not None:
        return open_days
    if FLIGHTS in project.catalogues and (left := len(project.plan(FLIGHTS).missing)):
        return f"{left} partitions of {FLIGHTS.name} are missing, and go first."
    if _is_training(project, instance):
        return "The models are being trained."
    since = RealClock().now() - PAUSE
    lately = dg.RunsFilter(job_name=TRAINING_JOB, updated_after=since)
    if instance.get_runs_count(lately):
        return f"A training ended without models; the next one follows {PAUSE} after it."
    return None


def _is_training(project: Project, instance: dg.DagsterInstance) -> bool:
    """Return whether a training is at work; one that was killed is reported as failed."""
    found = [r for r in every_unfinished_run(instance) if r.dagster_run.job_name == TRAINING_JOB]
    failed = fail_abandoned_runs(instance, project, found, now=RealClock().now())
    return len(found) > len(failed)


def _why_too_early(project: Project) -> str | None:
    last = FIRST_DAY - ONE_DAY
    if FLIGHTS.latest_closed_day(project.clock.now()) >= last:
        return None
    closes_at = FLIGHTS.closing.closes_at(last)
    return f"The models learn from the flights up to {last}, which closes at {closes_at}."
