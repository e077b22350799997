"""Trained models in a folder: whole or absent, checked when they are read, current in one step."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import ModelError
from backfill_assets.flights.models import artifacts
from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets_tests.stores.children import Child

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.flights.models.scores import DelayModels


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    """An empty one."""
    return ModelFolder(lambda: tmp_path / "models")


def other_version(models: DelayModels) -> DelayModels:
    return replace(models, card=replace(models.card, version="0" * 12))


def test_what_was_saved_is_read_back_and_is_current(
    folder: ModelFolder, january: DelayModels
) -> None:
    assert folder.current() is None
    folder.save(january)
    card = folder.current()
    assert card is not None
    assert card.version == january.card.version
    assert card.probes == january.card.probes
    assert set(card.digests) == {"risk", "anomaly"}
    rows = january.card.probes["rows"]
    assert folder.load(card.version).risks(rows) == january.risks(rows)


def test_saving_again_keeps_the_files_and_another_version_becomes_current(
    folder: ModelFolder, january: DelayModels, tmp_path: Path
) -> None:
    folder.save(january)
    path = folder.path(january.card.version) / "risk.skops"
    before = path.stat().st_mtime_ns
    folder.save(other_version(january))
    assert folder.current() != folder.card(january.card.version)
    folder.save(january)
    assert path.stat().st_mtime_ns == before
    assert folder.current() == folder.card(january.card.version)
    names = {"current.json", january.card.version, "0" * 12}
    assert {p.name for p in (tmp_path / "models").iterdir()} == names


@pytest.mark.parametrize("name", ["rename", "replace", "fsync"])
def test_a_trainer_that_is_killed_leaves_the_current_models_as_they_were(
    folder: ModelFolder, january: DelayModels, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder.save(january)

    def save_and_die() -> None:
        owner = artifacts.Path if name == "replace" else artifacts.os
        monkeypatch.setattr(owner, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        folder.save(other_version(january))

    assert Child(save_and_die).exit_code() == -signal.SIGKILL
    assert folder.current() == folder.card(january.card.version)
    assert folder.save(other_version(january)).card.version == "0" * 12


def test_a_damaged_file_is_refused_by_name(folder: ModelFolder, january: DelayModels) -> None:
    folder.save(january)
    path = folder.path(january.card.version) / "anomaly.skops"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"anomaly\.skops is damaged"):
        folder.load(january.card.version)


def test_models_that_score_otherwise_than_at_training_are_refused(
    folder: ModelFolder, january: DelayModels
) -> None:
    folder.save(january)
    path = folder.path(january.card.version) / "card.json"
    card = json.loads(path.read_text())
    card["probes"]["risks"][0] += 0.01
    path.write_text(json.dumps(card))
    with pytest.raises(ModelError, match="they score otherwise than when they were trained"):
        folder.load(january.card.version)


def test_absent_and_damaged_cards_say_what_to_do(folder: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no models of version 'ab12'; materialize the asset"):
        folder.load("ab12")
    with pytest.raises(ModelError, match=r"version '\.\./x': a version is letters and digits"):
        folder.load("../x")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "current.json").write_text("{")
    with pytest.raises(ModelError, match=r"current\.json is damaged"):
        folder.current()
