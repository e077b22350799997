"""``missing_partitions_sensor``: expected − present, computed afresh at every tick, and launched.

Everything is derived from the files. The cursor holds hints only: losing it costs a query.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from backfill_assets.core.catalogue import Catalogue
from backfill_assets.resources.pace import Pace
from backfill_assets.resources.project import Project
from backfill_assets.resources.tick import Tick


def missing_partitions_sensor(
    project: Project, catalogue: Catalogue, jobs: Sequence[Any]
) -> dg.SensorDefinition:
    """Return the sensor of one catalogue, running from the start."""
    pace = Pace()

    @dg.sensor(
        name=f"{catalogue.name}_missing_partitions_sensor"
        if len(project.data_sets) > 1
        else "missing_partitions_sensor",
        jobs=jobs,
        minimum_interval_seconds=project.tick_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Scans the store, and launches what is missing: the newest closed day by itself "
            "first, then history backwards in batches."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if pace.rest_left > 0:
            return dg.SkipReason(
                "All stood when it was looked at, and looking took long; the next look is in "
                f"{pace.rest_left:.0f} s."
            )
        tick = Tick(project, catalogue, context.instance, context.log)
        with pace.look():
            found = tick.evaluate(context.cursor)
        if not tick.is_idle:
            pace.go_on()
        return found

    return sensor
