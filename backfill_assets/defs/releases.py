"""Releasing days in Dagster: a sensor, a job that drives the sagas, and a form to retract a day."""

from collections import Counter

import dagster as dg

from backfill_assets.core.catalogue import Catalogue
from backfill_assets.core.partitions import parse_day
from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.resources.launchpad import errors_in_words, form
from backfill_assets.resources.release_tick import (
    RELEASE_JOB,
    RELEASE_OP,
    ReleaseTick,
    release_days,
)
from backfill_assets.resources.releases import Releasing

TICK_SECONDS = 30  # a closed day is released within a minute of its last file


def release_jobs(releasing: Releasing) -> list[dg.JobDefinition]:
    """Return the job that releases days, and the one with which a person retracts one."""

    @dg.op(
        name=RELEASE_OP,
        config_schema={"releases": dg.Field([str], description="CATALOGUE/YYYY-MM-DD[/ROUND]")},
        # For the attempt that comes with it, whose lock tells whether the run is alive.
        required_resource_keys={IO_MANAGER},
        out=dg.Out(dg.Nothing),
    )
    def release(context: dg.OpExecutionContext) -> None:
        stands = release_days(releasing, context.op_config["releases"], context.log)
        counts = Counter(stands.values())
        context.log.info("; ".join(f"{count} {how}" for how, count in counts.most_common()))
        context.add_output_metadata({"releases": dg.MetadataValue.json(stands)})

    @dg.op(
        config_schema={
            "catalogue": dg.Field(str),
            "day": dg.Field(str, description="YYYY-MM-DD"),
            "who": dg.Field(str, description="Who retracts it."),
            "reason": dg.Field(str, description="Why; subscribers and holds repeat it."),
        },
        out=dg.Out(dg.Nothing),
    )
    def retract(context: dg.OpExecutionContext) -> None:
        context.log.info(_retract(releasing, **context.op_config))

    @dg.job(
        name=RELEASE_JOB,
        description="Release complete days; the sensor launches it. A day that is not is refused.",
        config=form(RELEASE_OP, releases=["CATALOGUE/YYYY-MM-DD"]),
    )
    def release_job() -> None:
        release()

    @dg.job(
        description=(
            "Take a released day back: its rows and manifest go, its partitions are held until "
            "they are released, and subscribers are told."
        ),
        config=form("retract", catalogue="CATALOGUE", day="YYYY-MM-DD", who="WHO", reason="WHY"),
    )
    def retract_day() -> None:
        retract()

    return [release_job, retract_day]


def release_sensor(releasing: Releasing, catalogue: Catalogue) -> dg.SensorDefinition:
    """Return the sensor that has the complete days of a catalogue released.

    It runs from the start: while anything is filled it asks Dagster for unfinished runs and no
    more, and a day costs about a tenth of a second afterwards.
    """
    is_alone = len(releasing.project.data_sets) == 1

    @dg.sensor(
        name="release_sensor" if is_alone else f"{catalogue.name}_release_sensor",
        job_name=RELEASE_JOB,
        minimum_interval_seconds=max(TICK_SECONDS, releasing.project.tick_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Has complete days released, newest first, while no run over partitions is unfinished; "
            "days whose release was taken back again and again are held."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = ReleaseTick(releasing, catalogue, context.instance, context.log)
        return tick.evaluate(context.cursor)

    return sensor


def _retract(releasing: Releasing, catalogue: str, day: str, who: str, reason: str) -> str:
    """Retract a day, and say what came of it."""
    parsed = parse_day(day)
    if parsed is None:
        raise dg.Failure(f"day {day!r}: expected YYYY-MM-DD", allow_retries=False)
    with errors_in_words():
        undone = releasing.retract(catalogue, parsed, who=who, why=reason)
    return "; ".join(f"{saga.saga_id} is {saga.status}" for saga in undone)
