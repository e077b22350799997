"""What a part of the project adds to the definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dagster as dg


@dataclass(frozen=True, slots=True)
class Part:
    """Definitions of one concern, for ``location`` to put together with the others."""

    assets: Sequence[dg.AssetsDefinition] = ()
    checks: Sequence[dg.AssetChecksDefinition] = ()
    jobs: Sequence[Any] = ()  # Dagster has no public type for what defines an asset job
    sensors: Sequence[dg.SensorDefinition] = ()
