"""Trained models in a folder: ``<version>/`` with a card and two files, and which one is current.

    root/0f3a…/card.json, risk.skops, anomaly.skops
    root/current.json

A version's folder appears whole under its name, or not at all. The files are skops and not pickle:
reading one can make nothing but the types listed here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import ModelError
from backfill_assets.flights.models.scores import DelayModels, ModelCard

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("risk", "anomaly")
# What the two estimators consist of besides what skops trusts by itself.
TRUSTED = [
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
]
CURRENT = "current.json"
CARD = "card.json"
VERSIONS_IN_MEMORY = 2  # the current one, and the one before while its last requests end

REMEDY = "materialize the asset flight_models/trained_models"


class ModelFolder:
    """The folder that trained models are kept in.

    Args:
        root: Gives the folder; asked at each use, so that nothing is read when it is named.
    """

    def __init__(self, root: Callable[[], Path]) -> None:
        self._root = root

    def save(self, models: DelayModels) -> DelayModels:
        """Keep the models, and make them the current ones.

        A crash leaves the version whole or absent, and the current one what it was or this. A
        version that stands already is kept as it is.
        """
        target = self.path(models.card.version)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
        try:
            _write(draft, models)
            if not (target / CARD).exists():
                # Fails where another trainer was faster: a folder with files is never replaced.
                os.rename(draft, target)  # noqa: PTH104 - Path.rename says less about folders
        except FileExistsError:
            pass
        except OSError:
            if not (target / CARD).exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _flush(target.parent)
        saved = self.load(models.card.version)
        self._make_current(saved.card.version)
        return saved

    def current(self) -> ModelCard | None:
        """Return the card of the current models, or None where none was trained yet.

        Raises:
            ModelError: the folder says which is current, and it is not there or damaged.
        """
        path = self._root() / CURRENT
        try:
            version = json.loads(path.read_text())["version"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            message = f"{path} is damaged ({error}); remove it, and {REMEDY}"
            raise ModelError(message) from error
        return self.card(version)

    def card(self, version: str) -> ModelCard:
        """Return the card of a version.

        Raises:
            ModelError: there is no such version, or its card is damaged.
        """
        path = self.path(version) / CARD
        try:
            return ModelCard.parse(json.loads(path.read_text()))
        except FileNotFoundError:
            message = f"{path} does not exist: no models of version {version!r}; {REMEDY}"
            raise ModelError(message) from None
        except (ValueError, TypeError) as error:
            message = f"{path} is damaged ({error}); remove its folder, and {REMEDY}"
            raise ModelError(message) from error

    def load(self, version: str) -> DelayModels:
        """Return the models of a version, after they scored their card's probes as at training.

        Raises:
            ModelError: there is no such version, or it is damaged or scores otherwise.
        """
        card = self.card(version)
        models = DelayModels(card, *(self._part(card, name) for name in PARTS))
        models.check()
        return models

    def _part(self, card: ModelCard, name: str) -> Any:
        from skops.io import loads  # noqa: PLC0415 - two seconds of imports, for those who score

        path = self.path(card.version) / f"{name}.skops"
        try:
            content = path.read_bytes()
        except OSError as error:
            message = f"{path} cannot be read ({error.strerror}); remove its folder, and {REMEDY}"
            raise ModelError(message) from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != card.digests[name]:
            message = (
                f"{path} is damaged: SHA-256 {digest[:12]}…, and its card says "
                f"{card.digests[name][:12]}…; remove its folder, and {REMEDY}"
            )
            raise ModelError(message)
        return loads(content, trusted=TRUSTED)

    def path(self, version: str) -> Path:
        """Return the folder of a version, which need not be there."""
        if not version.isalnum():
            message = f"version {version!r}: a version is letters and digits"
            raise ModelError(message)
        return self._root() / version

    def _make_current(self, version: str) -> None:
        root = self._root()
        draft = root / f".{CURRENT}.{os.getpid()}"
        _write_durably(draft, json.dumps({"version": version}).encode())
        draft.replace(root / CURRENT)
        _flush(root)


def cached_loader(folder: ModelFolder) -> Callable[[str], DelayModels]:
    """Return ``folder.load`` that keeps the last versions in memory."""
    return lru_cache(maxsize=VERSIONS_IN_MEMORY)(folder.load)


def _write(folder: Path, models: DelayModels) -> None:
    from skops.io import dumps  # noqa: PLC0415 - see _part

    contents = {name: dumps(getattr(models, name)) for name in PARTS}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    card = replace(models.card, digests=digests)
    for name, content in contents.items():
        _write_durably(folder / f"{name}.skops", content)
    _write_durably(folder / CARD, json.dumps(card.facts(), indent=1).encode())
    _flush(folder)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
