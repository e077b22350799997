"""Jobs with a form in the launchpad, for what a person does to partitions."""

import dagster as dg

from backfill_assets.core.selection import FORM
from backfill_assets.resources import operations
from backfill_assets.resources.launchpad import errors_in_words, form
from backfill_assets.resources.project import Project

EXAMPLE = "CATALOGUE/CATEGORY/VALUE_TYPE/DAYS/UNITS"


def operation_jobs(project: Project) -> list[dg.JobDefinition]:
    """Return the jobs that hold, release and restate partitions."""

    @dg.op(config_schema={"partitions": _selection_field(), "reason": dg.Field(str)})
    def hold(context: dg.OpExecutionContext) -> None:
        chosen, reason = context.op_config["partitions"], context.op_config["reason"]
        with errors_in_words():
            context.log.info(f"Held {operations.hold(project, chosen, reason)}")

    @dg.op(config_schema={"partitions": _selection_field()})
    def release(context: dg.OpExecutionContext) -> None:
        chosen = context.op_config["partitions"]
        with errors_in_words():
            context.log.info(f"Released {operations.release(project, chosen)}")

    @dg.op(config_schema={"partitions": _selection_field()})
    def restate(context: dg.OpExecutionContext) -> None:
        chosen = context.op_config["partitions"]
        with errors_in_words():
            context.log.info(f"To be restated: {operations.restate(project, chosen)}")

    @dg.job(
        description="Have committed partitions made again and replaced, after missing work.",
        config=form("restate", partitions=EXAMPLE),
    )
    def restate_partitions() -> None:
        restate()

    @dg.job(
        description="Withdraw partitions, and keep them withdrawn until they are released.",
        config=form("hold", partitions=EXAMPLE, reason="WHY"),
    )
    def hold_partitions() -> None:
        hold()

    @dg.job(
        description="Make held partitions missing again; the next tick makes them.",
        config=form("release", partitions=EXAMPLE),
    )
    def release_partitions() -> None:
        release()

    return [hold_partitions, release_partitions, restate_partitions]


def _selection_field() -> dg.Field:
    return dg.Field(str, description=f"Which partitions: {FORM}")
