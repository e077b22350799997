"""Training the two models from earlier months, so that the same data gives the same scores.

Seeds are fixed, rows come sorted, and one thread adds up: nothing depends on the machine's mood.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from backfill_assets.core.errors import SourceError
from backfill_assets.flights.models.features import (
    FEATURES,
    NAMES,
    Row,
    facts_and_delays,
    features,
    vocabularies,
)
from backfill_assets.flights.models.scores import DelayModels, ModelCard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

RECIPE = 1  # of this module; raised with each change that makes other models of the same data
LIBRARIES = ("numpy", "scikit-learn")  # another version of these may make another model
PROBES = 20  # rows whose scores a card keeps, to notice a model that was read back differently
FEWEST_FLIGHTS = 1_000  # below this a model would learn noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the models are trained; every part of it is a part of their version.

    Attributes:
        first_day: The first day that they learn from; inclusive.
        last_day: The last one; inclusive.
        late_minutes: From how many minutes after its time an arrival counts as late.
        trees: Trees of the risk model, one after the other.
        leaves: The most leaves of such a tree.
        leaf_flights: The fewest flights in a leaf: fewer, and it remembers single days.
        learning_rate: How far each tree moves the answer.
        isolation_trees: Trees of the anomaly model.
        seed: Of everything that is drawn.
    """

    first_day: date = date(2013, 1, 1)
    last_day: date = date(2013, 6, 30)
    late_minutes: int = 30
    trees: int = 100
    leaves: int = 15
    leaf_flights: int = 500
    learning_rate: float = 0.05
    isolation_trees: int = 50
    seed: int = 2013

    def facts(self) -> dict[str, Any]:
        """Return the recipe as JSON can carry it."""
        return {"module": RECIPE, **asdict(self)} | {
            "first_day": self.first_day.isoformat(),
            "last_day": self.last_day.isoformat(),
        }


RECIPE_OF_2013 = Recipe()


def train(url: str, recipe: Recipe = RECIPE_OF_2013) -> DelayModels:
    """Return the models that a recipe makes of the flights in a database.

    The same rows, recipe and libraries give the same version and the same scores.

    Raises:
        SourceError: the database cannot be read, or holds too few flights to learn from.
    """
    facts, digest = facts_and_delays(url, recipe.first_day, recipe.last_day)
    if facts.num_rows < FEWEST_FLIGHTS:
        message = (
            f"{facts.num_rows} flights from {recipe.first_day} to {recipe.last_day}: "
            f"{FEWEST_FLIGHTS} are needed to learn from; load the flights"
        )
        raise SourceError(message)
    names = vocabularies(facts)
    rows = features(facts, names).rows
    with threadpool_limits(limits=1):
        risk = _risk_model(recipe, rows, _delays(facts))
        anomaly = _anomaly_model(recipe, rows)
    models = DelayModels(_card(recipe, digest, facts.num_rows, names), risk, anomaly)
    return models.with_probes(_probes(rows))


def is_late(delays: npt.NDArray[np.float64], late_minutes: int) -> npt.NDArray[np.bool_]:
    """Return of each delay whether it counts as late."""
    late: npt.NDArray[np.bool_] = delays >= late_minutes
    return late


def area_under_curve(
    url: str, models: DelayModels, first_day: date, last_day: date
) -> dict[str, float]:
    """Return how well the risk orders flights that the models have not seen, by month and in all.

    1 is perfect, 0.5 is chance. Flights that never arrived do not count.

    Raises:
        SourceError: the database cannot be read.
    """
    facts, _ = facts_and_delays(url, first_day, last_day)
    delays = _delays(facts)
    arrived = ~np.isnan(delays)
    if not arrived.any():
        return {}
    risks = np.asarray(models.risks(features(facts, models.card.vocabularies).rows))
    late = is_late(delays, models.card.late_minutes)
    months = np.asarray([f"{day:%Y-%m}" for day in facts.column("date").to_pylist()])
    chosen = {month: arrived & (months == month) for month in sorted(set(months.tolist()))}
    groups = {"all": arrived, **chosen}
    return {
        name: round(float(roc_auc_score(late[group], risks[group])), 4)
        for name, group in groups.items()
        if 0 < late[group].sum() < group.sum()  # of one kind alone there is no order
    }


def _risk_model(recipe: Recipe, rows: Sequence[Row], delays: npt.NDArray[np.float64]) -> Any:
    arrived = ~np.isnan(delays)
    model = HistGradientBoostingClassifier(
        max_iter=recipe.trees,
        max_leaf_nodes=recipe.leaves,
        min_samples_leaf=recipe.leaf_flights,
        learning_rate=recipe.learning_rate,
        categorical_features=list(range(len(NAMES))),
        early_stopping=False,  # it would hold back a tenth of the flights
        random_state=recipe.seed,
    )
    return model.fit(
        np.asarray(rows, dtype=float)[arrived], is_late(delays[arrived], recipe.late_minutes)
    )


def _anomaly_model(recipe: Recipe, rows: Sequence[Row]) -> Any:
    model = IsolationForest(n_estimators=recipe.isolation_trees, n_jobs=1, random_state=recipe.seed)
    # Without the names: their numbers are an order of the alphabet, which isolates nothing.
    return model.fit(np.asarray(rows, dtype=float)[:, len(NAMES) :])


def _delays(facts: pa.Table) -> npt.NDArray[np.float64]:
    delays: npt.NDArray[np.float64] = facts.column("arrival_delay").to_numpy()
    return delays


def _card(recipe: Recipe, digest: str, count: int, names: Mapping[str, list[str]]) -> ModelCard:
    origin = {
        "data": digest,
        "recipe": recipe.facts(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    text = json.dumps(origin, sort_keys=True).encode()
    return ModelCard(
        version=hashlib.sha256(text).hexdigest()[:12],
        origin=origin,
        flights=count,
        late_minutes=recipe.late_minutes,
        features=list(FEATURES),
        vocabularies=dict(names),
    )


def _probes(rows: Sequence[Row]) -> list[Row]:
    return list(rows[:: max(1, len(rows) // PROBES)][:PROBES])
