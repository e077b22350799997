"""The two models as one value: numbers of flights in, a risk and an anomaly of each out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from threadpoolctl import ThreadpoolController

from backfill_assets.core.errors import ModelError
from backfill_assets.flights.models.features import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from backfill_assets.flights.models.features import Row

DIGITS = 6  # of a score: more than anyone can use, few enough that no library's last bit shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What two models are, in JSON.

    Attributes:
        version: A digest of ``origin``; part of every key under which scores are kept.
        origin: The digest of the training data, the recipe and the versions of the libraries.
        flights: How many flights they have learned from.
        late_minutes: From how many minutes after its time an arrival counts as late.
        features: The numbers of a row, in order.
        vocabularies: The names behind the numbers of the text features.
        probes: Rows and their scores at training; a model that was read back must agree.
        digests: The SHA-256 of each model's file.
    """

    version: str
    origin: Mapping[str, Any]
    flights: int
    late_minutes: int
    features: Sequence[str]
    vocabularies: Mapping[str, Sequence[str]]
    probes: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Return the card that ``facts`` are of.

        Raises:
            TypeError: something is missing, or is not known.
        """
        return cls(**facts)

    def facts(self) -> dict[str, Any]:
        """Return the card as JSON can carry it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DelayModels:
    """A card, and the estimators that it describes.

    The score of a row depends on that row alone, whatever stands beside it.
    """

    card: ModelCard
    risk: Any
    anomaly: Any

    def risks(self, rows: Sequence[Row]) -> list[float]:
        """Return the probability that each flight arrives late, between 0 and 1."""
        return self._scores(rows, lambda matrix: self.risk.predict_proba(matrix)[:, 1])

    def anomalies(self, rows: Sequence[Row]) -> list[float]:
        """Return how unusual each flight's schedule and weather are; about 0.4 is usual, 1 not."""
        return self._scores(
            rows, lambda matrix: -self.anomaly.score_samples(matrix[:, len(NAMES) :])
        )

    def with_probes(self, rows: Sequence[Row]) -> DelayModels:
        """Return the same models with these rows and their scores on the card."""
        probes = {
            "rows": list(rows),
            "risks": self.risks(rows),
            "anomalies": self.anomalies(rows),
        }
        return replace(self, card=replace(self.card, probes=probes))

    def check(self) -> None:
        """Score the card's probes once more.

        Raises:
            ModelError: a score is another than at training.
        """
        probes = self.card.probes
        found = (self.risks(probes["rows"]), self.anomalies(probes["rows"]))
        if found != (probes["risks"], probes["anomalies"]):
            message = (
                f"models {self.card.version}: they score otherwise than when they were trained, "
                f"with {self.card.origin['libraries']}; install these, or train them anew"
            )
            raise ModelError(message)

    def _scores(self, rows: Sequence[Row], score: Any) -> list[float]:
        if not rows:
            return []
        matrix: npt.NDArray[np.float64] = np.asarray(rows, dtype=float)
        if matrix.shape[1:] != (len(self.card.features),):
            message = (
                f"models {self.card.version}: a row needs {len(self.card.features)} numbers, "
                f"{', '.join(self.card.features)}; found {matrix.shape[1:]}"
            )
            raise ModelError(message)
        if np.isinf(matrix).any():
            message = f"models {self.card.version}: a row has an infinite number; give null"
            raise ModelError(message)
        with _threads().limit(limits=1):
            return [round(float(value), DIGITS) for value in score(matrix)]


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    """Return what limits threads; looking for the libraries that have some takes 20 ms."""
    return ThreadpoolController()
