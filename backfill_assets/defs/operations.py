"""Jobs with a form in the launchpad, for what a person does to partitions."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from backfill_assets.core.errors import BackfillAssetsError
from backfill_assets.core.selection import FORM
from backfill_assets.resources import operations
from backfill_assets.resources.project import Project


def operation_jobs(project: Project) -> list[dg.JobDefinition]:
    """Return the jobs that hold, release and restate partitions."""

    @dg.op(config_schema={"partitions": _selection_field(), "reason": dg.Field(str)})
    def hold(context: dg.OpExecutionContext) -> None:
        chosen, reason = context.op_config["partitions"], context.op_config["reason"]
        context.log.info(f"Held {_told(lambda: operations.hold(project, chosen, reason))}")

    @dg.op(config_schema={"partitions": _selection_field()})
    def release(context: dg.OpExecutionContext) -> None:
        chosen = context.op_config["partitions"]
        context.log.info(f"Released {_told(lambda: operations.release(project, chosen))}")

    @dg.op(config_schema={"partitions": _selection_field()})
    def restate(context: dg.OpExecutionContext) -> None:
        chosen = context.op_config["partitions"]
        context.log.info(f"To be restated: {_told(lambda: operations.restate(project, chosen))}")

    @dg.job(
        description="Have committed partitions made again and replaced, after missing work.",
        config=_form("restate"),
    )
    def restate_partitions() -> None:
        restate()

    @dg.job(
        description="Withdraw partitions, and keep them withdrawn until they are released.",
        config=_form("hold", reason="WHY"),
    )
    def hold_partitions() -> None:
        hold()

    @dg.job(
        description="Make held partitions missing again; the next tick makes them.",
        config=_form("release"),
    )
    def release_partitions() -> None:
        release()

    return [hold_partitions, release_partitions, restate_partitions]


def _form(op: str, **more: str) -> dict[str, Any]:
    """Return what stands in the launchpad at first: a form to fill in, which does nothing as is."""
    example = {"partitions": "CATALOGUE/CATEGORY/VALUE_TYPE/DAYS/UNITS", **more}
    return {"ops": {op: {"config": example}}}


def _selection_field() -> dg.Field:
    return dg.Field(str, description=f"Which partitions: {FORM}")


def _told(act: Callable[[], operations.Outcome]) -> str:
    """Do it, and say what came of it; an error of ours is a sentence, not a stack trace."""
    try:
        return str(act())
    except BackfillAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
