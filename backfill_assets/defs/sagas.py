"""Sagas in Dagster: what supervises them, and the forms by which a person decides.

Everything about a saga is in its database. A run that drives one can be killed at any point; the
sensor has another one take it up when its lease is over.
"""

from contextlib import closing
from typing import Any

import dagster as dg

from backfill_assets.core.sagas import Choice
from backfill_assets.defs.parts import Part
from backfill_assets.resources.launchpad import errors_in_words, form
from backfill_assets.resources.saga_desk import SagaDesk
from backfill_assets.resources.saga_runs import (
    DRIVE_OP,
    LOOK_AT_SAGAS_JOB,
    RUN_SAGA_JOB,
    supervise,
)
from backfill_assets.stores.sagas.rows import Saga

SAGAS_ASSET = dg.AssetKey(["sagas"])
CHECK_NAME = "no_stuck_saga"
DELIVERY_SECONDS = 30  # a person reads an alert within minutes
LISTED, CASES = 50, 20  # sagas that a page shows; more would hide the one that matters


def saga_definitions(desk: SagaDesk, tick_seconds: int) -> Part:
    """Return the asset, the check, the jobs and the sensors of the sagas.

    Args:
        tick_seconds: The least time between two looks of the supervisor.
    """
    jobs = [_run_job(desk), _decide_job(desk), _cancel_job(desk), _look_job()]
    return Part(
        assets=[_overview(desk)],
        checks=[_check(desk)],
        jobs=jobs,
        sensors=[_supervisor(desk, tick_seconds, [jobs[0], jobs[-1]]), _deliverer(desk)],
    )


def _run_job(desk: SagaDesk) -> dg.JobDefinition:
    @dg.op(name=DRIVE_OP, config_schema={"saga": _saga_field()}, out=dg.Out(dg.Nothing))
    def drive(context: dg.OpExecutionContext) -> None:
        with errors_in_words():
            show_saga(context, desk, desk.drive(context.op_config["saga"]))

    @dg.job(
        name=RUN_SAGA_JOB,
        description="Drive a saga as far as it goes; the sensor launches it for each that is due.",
        config=form(DRIVE_OP, saga="NAME/KEY"),
    )
    def run_saga() -> None:
        drive()

    return run_saga


def _decide_job(desk: SagaDesk) -> dg.JobDefinition:
    choices = dg.Enum("Choice", [dg.EnumValue(str(choice), choice) for choice in Choice])
    schema = {
        "saga": _saga_field(),
        "version": dg.Field(int, description="Of the case file that you looked at."),
        "choice": dg.Field(choices, description="One of those that the case file names."),
        "who": dg.Field(str, description="Who decides."),
        "why": dg.Field(str, description="Why; it stands in the journal."),
        "step": dg.Field(str, default_value="", description="Of replace."),
        "arguments": dg.Field(str, default_value="", description="Of replace: JSON."),
        "receipt": dg.Field(str, default_value="", description="Of accept: JSON."),
    }

    @dg.op(config_schema=schema, out=dg.Out(dg.Nothing))
    def decide(context: dg.OpExecutionContext) -> None:
        given = dict(context.op_config)
        saga_id = given.pop("saga")
        with errors_in_words():
            desk.decide(saga_id, **given)
            show_saga(context, desk, desk.drive(saga_id))

    @dg.job(
        description="Decide about a saga that waits for a person, and drive it on.",
        config=form("decide", saga="NAME/KEY", version=0, choice="retry", who="WHO", why="WHY"),
    )
    def decide_saga() -> None:
        decide()

    return decide_saga


def _cancel_job(desk: SagaDesk) -> dg.JobDefinition:
    schema = {
        "saga": _saga_field(),
        "who": dg.Field(str, description="Who cancels it."),
        "why": dg.Field(str, description="Why; it stands in the journal."),
    }

    @dg.op(config_schema=schema, out=dg.Out(dg.Nothing))
    def cancel(context: dg.OpExecutionContext) -> None:
        given = dict(context.op_config)
        saga_id = given.pop("saga")
        with errors_in_words():
            desk.cancel(saga_id, **given)
            show_saga(context, desk, desk.drive(saga_id))

    @dg.job(
        description="Have everything undone that a saga did, also one that is completed.",
        config=form("cancel", saga="NAME/KEY", who="WHO", why="WHY"),
    )
    def cancel_saga() -> None:
        cancel()

    return cancel_saga


def _look_job() -> Any:
    """Return the job that looks at all sagas; the sensor launches it when other ones wait."""
    return dg.define_asset_job(
        LOOK_AT_SAGAS_JOB,
        selection=dg.AssetSelection.assets(SAGAS_ASSET),
        description="Looks at all sagas, and whether one is stuck.",
    )


def _supervisor(desk: SagaDesk, tick_seconds: int, jobs: list[Any]) -> dg.SensorDefinition:
    @dg.sensor(
        jobs=jobs,
        minimum_interval_seconds=tick_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Fences steps that are past their deadline, and has sagas taken up again whose owner "
            "died or whose timer is over."
        ),
    )
    def saga_supervising_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(desk):
            tick = supervise(desk, context.cursor)
        context.log.info(tick.summary)
        skipped = None if tick.requests else tick.summary
        return dg.SensorResult(run_requests=tick.requests, cursor=tick.cursor, skip_reason=skipped)

    return saga_supervising_sensor


def _deliverer(desk: SagaDesk) -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=DELIVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Delivers alerts from the outbox, at least once and in order.",
    )
    def alert_delivering_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        with closing(desk):
            delivered = desk.delivery.deliver()
        for one in delivered:
            context.log.info(f"{one.dedup_key} reached {one.target}")
        return dg.SkipReason(f"{len(delivered)} alerts delivered")

    return alert_delivering_sensor


def _overview(desk: SagaDesk) -> dg.AssetsDefinition:
    @dg.asset(
        key=SAGAS_ASSET,
        group_name="sagas",
        description=(
            "The newest sagas, and the case files of those that wait for a person. Materialize it "
            "to look anew; the case file of any other is with the run that drove it last."
        ),
        kinds={"table"},
    )
    def sagas() -> dg.MaterializeResult[None]:
        with closing(desk):
            found = desk.open_sagas()
            waiting = [saga for saga in found if saga.question is not None]
            newest = desk.sagas.find()[:LISTED]
            cases = {f"case {s.saga_id}": _case(desk, s) for s in waiting[:CASES]}
        return dg.MaterializeResult(
            metadata={
                "open": len(found),
                "waiting for a decision": len(waiting),
                "newest": dg.MetadataValue.md(_listed(newest)),
                **{name: dg.MetadataValue.md(text) for name, text in cases.items()},
            }
        )

    return sagas


def _check(desk: SagaDesk) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        name=CHECK_NAME,
        asset=SAGAS_ASSET,
        description="No saga waits for a person, breaks off, or is left lying.",
    )
    def no_stuck_saga() -> dg.AssetCheckResult:
        with closing(desk):
            stuck = {kind: names for kind, names in desk.stuck_sagas().items() if names}
        told_of = "; ".join(f"{len(names)} {kind}" for kind, names in stuck.items())
        return dg.AssetCheckResult(
            passed=not stuck,
            description=told_of or "none is stuck",
            metadata={
                kind: dg.MetadataValue.md("\n".join(f"* {name}" for name in names[:CASES]))
                for kind, names in stuck.items()
            },
        )

    return no_stuck_saga


def show_saga(context: dg.OpExecutionContext, desk: SagaDesk, saga: Saga) -> None:
    """Show where a saga stands, in the log of the run and with its output."""
    context.log.info(f"{saga.saga_id} is {saga.status}")
    if saga.question is not None:
        context.log.warning(f"{saga.saga_id} waits for a decision: {saga.question.reason}")
    context.add_output_metadata({"case": dg.MetadataValue.md(_case(desk, saga))})


def _case(desk: SagaDesk, saga: Saga) -> str:
    return desk.sagas.case_file(saga.saga_id).markdown()


def _listed(sagas: list[Saga]) -> str:
    head = "| saga | status | version | due at | since |\n|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {s.saga_id} | {s.status} | {s.version} | {s.due_at or ''} | {s.updated_at} |"
        for s in sagas
    )


def _saga_field() -> dg.Field:
    return dg.Field(str, description="The saga: its name, a slash, its key.")
