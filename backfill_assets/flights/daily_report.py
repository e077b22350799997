"""Which carriers were on time on a day: a small use of the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def punctuality_of_carriers(
    departures: pd.DataFrame, cancellations: pd.DataFrame, arrival_delay: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per carrier, the most punctual first.

    Each frame has the columns ``date``, ``unit``, ``carrier`` and ``value``, of one day and all
    units. The mean delay weighs each unit by its departures.
    """
    keys = ["unit", "carrier"]
    table = departures[[*keys, "value"]].rename(columns={"value": "departures"})
    for name, frame in (("cancellations", cancellations), ("delay", arrival_delay)):
        table = table.merge(frame[[*keys, "value"]].rename(columns={"value": name}), on=keys)
    table["minutes"] = table["delay"].fillna(0) * table["departures"]
    sums = table.groupby("carrier")[["departures", "cancellations", "minutes"]].sum()
    sums["arrival_delay"] = (
        sums["minutes"] / sums["departures"].where(sums["departures"] > 0)
    ).round(1)
    ranked = sums.drop(columns="minutes").sort_values(["arrival_delay", "carrier"])
    return ranked.reset_index()
