"""The models of delay in Dagster: training, how the pipeline fares, and single requests.

The scores themselves are partitions like any others; see ``assets``.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg

from backfill_assets.core.closing import ONE_DAY
from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.core.partitions import parse_day
from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.defs.parts import Part
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.flights.models.catalogue import FIRST_DAY, FLIGHT_MODELS, LAST_DAY
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.flights.models.source import ScoredFlights
from backfill_assets.resources.abandoned_runs import every_unfinished_run
from backfill_assets.resources.project import Project

TRAINED = dg.AssetKey([FLIGHT_MODELS.name, "trained_models"])
PIPELINE = dg.AssetKey([FLIGHT_MODELS.name, "pipeline"])
TRAINING_JOB = "train_flight_models"
TRAINING_PRIORITY = "-15"  # after the history of what is expected, before what is made again
PAUSE = timedelta(minutes=10)  # after a training that failed or was cancelled
NAMED = 20  # items that a result names before it counts the rest


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


def pipeline(scoring: Scoring) -> dg.AssetsDefinition:
    """Return the asset that shows how the steps of the pipeline fared."""

    @dg.asset(
        key=PIPELINE,
        group_name=FLIGHT_MODELS.name,
        description=(
            "How the steps fared under the idempotency log: what is tried again and why, and which "
            "attempts came back late and changed nothing. `backfill-assets trail KEY` tells all "
            "about one key. Materialize it to look anew."
        ),
        kinds={"table"},
        required_resource_keys={IO_MANAGER},
    )
    def seen() -> dg.MaterializeResult[None]:
        unfinished, late = scoring.unfinished(), scoring.late_attempts()
        return dg.MaterializeResult(
            metadata={
                "unfinished steps": len(unfinished),
                "late results": len(late),
                "reasons": dg.MetadataValue.json(unfinished[:NAMED]),
                "late arrivals": dg.MetadataValue.md(_late_table(late[-NAMED:])),
            }
        )

    return seen


def pipeline_checks(project: Project, scoring: Scoring) -> dg.AssetChecksDefinition:
    """Return the checks on the pipeline: nothing came late, and rows and files agree."""

    @dg.multi_asset_check(
        name="flight_models_pipeline_checks",
        specs=[
            dg.AssetCheckSpec(
                "no_late_results",
                asset=PIPELINE,
                description=(
                    "No attempt came back after another one had taken over. Those that did were "
                    "fenced and changed nothing; a warning says who is slow or was stopped."
                ),
            ),
            dg.AssetCheckSpec(
                "rows_agree_with_files",
                asset=PIPELINE,
                description="Every committed day and airport has its row of saved scores.",
            ),
        ],
        can_subset=True,
        required_resource_keys={IO_MANAGER},
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        wanted = {key.name for key in context.selected_asset_check_keys}
        if "no_late_results" in wanted:
            yield _no_late_results(scoring)
        if "rows_agree_with_files" in wanted:
            yield _rows_agree_with_files(project, scoring)

    return checks


def score_flight_job(scoring: Scoring) -> dg.JobDefinition:
    """Return the job that scores one flight, once for each request."""

    @dg.op(
        config_schema={
            "request": dg.Field(str, description="Your own name for this request, such as a UUID."),
            "date": dg.Field(str, description="YYYY-MM-DD, in 2013"),
            "airport": dg.Field(str, description=", ".join(FLIGHT_MODELS.unit_names)),
            "flight": dg.Field(str, description="Carrier and number, such as UA1545."),
        }
    )
    def score(context: dg.OpExecutionContext) -> None:
        form = context.op_config
        try:
            scores = scoring.score_flight(
                form["request"], _day(form["date"]), form["airport"], form["flight"]
            )
        except BackfillAssetsError as error:
            raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from None
        context.log.info(
            f"Flight {scores.flights[0]}: risk {scores.risks[0]:.3f}, anomaly "
            f"{scores.anomalies[0]:.3f}, by models {scores.model}"
        )
        context.add_output_metadata({"risk": scores.risks[0], "anomaly": scores.anomalies[0]})

    example = {"request": "UUID", "date": "2013-10-07", "airport": "EWR", "flight": "UA1545"}

    @dg.job(
        name="score_flight",
        description=(
            "Score one flight. The same request again gets the stored answer; the same name for "
            "another flight is refused."
        ),
        config={"ops": {"score": {"config": example}}},
    )
    def score_flight() -> None:
        score()

    return score_flight


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
    if any(r.dagster_run.job_name == TRAINING_JOB for r in every_unfinished_run(instance)):
        return "The models are being trained."
    since = datetime.now(UTC) - PAUSE
    lately = dg.RunsFilter(job_name=TRAINING_JOB, updated_after=since)
    if instance.get_runs_count(lately):
        return f"A training ended without models; the next one follows {PAUSE} after it."
    return None


def _why_too_early(project: Project) -> str | None:
    last = FIRST_DAY - ONE_DAY
    if FLIGHTS.latest_closed_day(project.clock.now()) >= last:
        return None
    closes_at = FLIGHTS.closing.closes_at(last)
    return f"The models learn from the flights up to {last}, which closes at {closes_at}."


def _no_late_results(scoring: Scoring) -> dg.AssetCheckResult:
    late = scoring.late_attempts()
    differing = [one for one in late if one.differs]
    return dg.AssetCheckResult(
        passed=not late,
        asset_key=PIPELINE,
        check_name="no_late_results",
        # One that gives the same is slow; one that gives something else is a fault.
        severity=dg.AssetCheckSeverity.ERROR if differing else dg.AssetCheckSeverity.WARN,
        description=(
            f"{len(late)} attempts came back late and changed nothing; {len(differing)} of them "
            "wanted to store something else than what stands"
        ),
        metadata={"late arrivals": dg.MetadataValue.md(_late_table(late[-NAMED:]))},
    )


def _rows_agree_with_files(project: Project, scoring: Scoring) -> dg.AssetCheckResult:
    current = scoring.folder.current()
    stale = project.plan(FLIGHT_MODELS, looks_for_changes=True).restating
    committed = project.store.scan(FLIGHT_MODELS).committed - stale
    files = {(partition.day, partition.unit) for partition in committed}
    rows = scoring.saved(current.version) if current is not None else set()
    lost = sorted(files - rows, reverse=True)
    return dg.AssetCheckResult(
        passed=not lost,
        asset_key=PIPELINE,
        check_name="rows_agree_with_files",
        description=(
            f"{len(lost)} days and airports have a file and no row: their rows were lost with the "
            "database. The files stand; restate them to have the rows written again"
            if lost
            else "agrees"
        ),
        metadata={
            "without a row": dg.MetadataValue.json([_named(*one) for one in lost[:NAMED]]),
            "saved, and not yet a file": len(rows - files),
        },
    )


def _late_table(late: Sequence[Any]) -> str:
    lines = [
        f"| {one.key} | {one.operation} | {one.attempt} | {one.worker} | {one.ended_at:%F %T} | "
        f"{one.winner or ''} | {'yes' if one.differs else 'no'} |"
        for one in late
    ]
    head = "| key | step | attempt | worker | came back | stands | differs |\n|" + "---|" * 7
    return "\n".join([head, *lines]) if lines else "none"


def _named(day: date, unit: str) -> str:
    return f"{day}|{unit}"


def _day(text: str) -> date:
    day = parse_day(text)
    if day is None:
        raise dg.Failure(f"date {text!r}: give YYYY-MM-DD", allow_retries=False)
    return day
