"""Assets over date x unit whose IO manager reports for itself, as this project's does."""

from contextlib import nullcontext

import dagster as dg

from backfill_assets.resources.event_log import (
    CommittedGroup,
    CommittedPartition,
    automatic_events_deferred,
    report_in_run,
)

UNITS = ["EWR", "JFK", "LGA"]
PARTITIONS = dg.MultiPartitionsDefinition(
    {
        "date": dg.DailyPartitionsDefinition("2013-08-01", end_date="2013-08-06"),
        "unit": dg.StaticPartitionsDefinition(UNITS),
    }
)
DEPARTURES = dg.AssetKey(["flights", "carrier", "departures"])


def group(*partition_keys: str, asset_key: dg.AssetKey = DEPARTURES) -> CommittedGroup:
    """A group of those partitions, each with a digest of its own."""
    partitions = [
        CommittedPartition(
            partition_key=key,
            data_version=f"digest of {key}",
            metadata={"rows": 16, "state": "committed", "path": dg.MetadataValue.path(f"/{key}")},
        )
        for key in partition_keys
    ]
    return CommittedGroup(asset_key=asset_key, code_version="v1", partitions=partitions)


class ReportingIOManager(dg.IOManager):
    """Commits nothing, and reports each day as a group of its own, newest first."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        assert obj is not None
        keys = [str(key) for key in context.asset_partition_keys]
        for day in sorted({key.split("|")[0] for key in keys}, reverse=True):
            report_in_run(context, group(*sorted(key for key in keys if key.startswith(day))))

    def load_input(self, context: dg.InputContext) -> object:
        raise NotImplementedError


def carrier_asset(*, deferring: bool) -> dg.AssetsDefinition:
    """Return an asset that yields one lazy value for all partitions of the run."""
    out = dg.AssetOut(key=DEPARTURES, io_manager_key="reporting", is_required=False)

    @dg.multi_asset(
        outs={"departures": out},
        partitions_def=PARTITIONS,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def carrier(context: dg.AssetExecutionContext) -> object:
        with automatic_events_deferred(context) if deferring else nullcontext():
            yield dg.Output(iter(()), output_name="departures")

    return carrier


carrier = carrier_asset(deferring=True)

defs = dg.Definitions(
    assets=[carrier],
    resources={"reporting": ReportingIOManager()},
    executor=dg.in_process_executor,
)
