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
    units. The mean delay weighs each unit by its departures, where one of them has arrived; null
    where none has at any unit.
    """
    keys = ["unit", "carrier"]
    table = departures[[*keys, "value"]].rename(columns={"value": "departures"})
    for name, frame in (("cancellations", cancellations), ("delay", arrival_delay)):
        table = table.merge(frame[[*keys, "value"]].rename(columns={"value": name}), on=keys)
    # A flight that departs may be diverted: a unit without a delay says nothing about punctuality.
    table["weight"] = table["departures"].where(table["delay"].notna(), 0)
    table["minutes"] = table["delay"].fillna(0) * table["weight"]
    sums = table.groupby("carrier")[["departures", "cancellations", "weight", "minutes"]].sum()
    sums["arrival_delay"] = (sums["minutes"] / sums["weight"].where(sums["weight"] > 0)).round(1)
    ranked = sums.drop(columns=["weight", "minutes"]).sort_values(["arrival_delay", "carrier"])
    return ranked.reset_index()
