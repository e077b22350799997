"""How the pipeline through the models fares: an asset that shows it, and its checks."""

from collections.abc import Iterator, Sequence
from datetime import date

import dagster as dg

from backfill_assets.defs.assets import IO_MANAGER
from backfill_assets.flights.models.catalogue import FLIGHT_MODELS
from backfill_assets.flights.models.scoring import Scoring
from backfill_assets.resources.project import Project
from backfill_assets.stores.log.ledger import LateAttempt

PIPELINE = dg.AssetKey([FLIGHT_MODELS.name, "pipeline"])
NAMED = 20  # items that a result names before it counts the rest


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
                    "No attempt came back in the last seven days after another one had taken over. "
                    "Those that did were fenced and changed nothing; a warning says who is slow or "
                    "was stopped."
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


def _late_table(late: Sequence[LateAttempt]) -> str:
    lines = [
        f"| {one.key} | {one.operation} | {one.attempt} | {one.worker} | {one.ended_at:%F %T} | "
        f"{one.winner or ''} | {'yes' if one.differs else 'no'} |"
        for one in late
    ]
    head = "| key | step | attempt | worker | came back | stands | differs |\n|" + "---|" * 7
    return "\n".join([head, *lines]) if lines else "none"


def _named(day: date, unit: str) -> str:
    return f"{day}|{unit}"
