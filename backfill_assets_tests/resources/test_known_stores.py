"""A store that was there before and is not now is a lost mount, not a new store."""

import shutil
from pathlib import Path

import pytest

from backfill_assets.core.errors import SettingsError, StoreUnreadableError
from backfill_assets.flights.catalogue import FLIGHTS
from backfill_assets.resources.known_stores import begin_store
from backfill_assets.stores.files.local import LocalPartitionStore


def begin(tmp_path: Path) -> None:
    """Begin the store as a new process would."""
    root = tmp_path / "store"
    begin_store(LocalPartitionStore(root, [FLIGHTS]), root, tmp_path / "stores.json")


def test_a_store_is_begun_once_and_checked_from_then_on(tmp_path: Path) -> None:
    begin(tmp_path)
    identity = (tmp_path / "store" / ".backfill-store.json").read_bytes()

    begin(tmp_path)

    assert (tmp_path / "store" / ".backfill-store.json").read_bytes() == identity


@pytest.mark.parametrize("leaves_a_folder", [True, False])
def test_a_store_that_was_lost_is_not_begun_anew(tmp_path: Path, leaves_a_folder: bool) -> None:  # noqa: FBT001 - a parameter
    begin(tmp_path)
    shutil.rmtree(tmp_path / "store")
    if leaves_a_folder:
        (tmp_path / "store").mkdir()

    with pytest.raises(StoreUnreadableError, match="was a store before and is none now"):
        begin(tmp_path)

    assert not (tmp_path / "store" / ".backfill-store.json").exists()


def test_with_its_memory_lost_only_the_protection_is_lost(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "stores.json").unlink()
    shutil.rmtree(tmp_path / "store")

    begin(tmp_path)

    assert (tmp_path / "store" / ".backfill-store.json").exists()


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    (tmp_path / "stores.json").write_text("{")

    with pytest.raises(SettingsError, match=r"stores\.json is damaged"):
        begin(tmp_path)
