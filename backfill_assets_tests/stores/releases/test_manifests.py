"""A manifest is whole or absent after every crash, and withdrawn for good."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.releases import Manifest, ReleaseKey
from backfill_assets.core.store import CommitRecord
from backfill_assets.stores.releases.manifests import Manifests
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.crash_points import killed_at, stopping_at
from backfill_assets_tests.stores.examples import a_store

if TYPE_CHECKING:
    from pathlib import Path

KEY = ReleaseKey("flights", date(2013, 8, 3))
RECORD = CommitRecord("flights/carrier/delay/2013-08-03/JFK", 1, 2, "d1")
FIRST = Manifest(KEY, (RECORD,))
SECOND = Manifest(KEY.following, (RECORD,))


@pytest.fixture(params=["link", "marker"])
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> Manifests:
    store = a_store(tmp_path / "store", protocol=request.param)
    store.prepare()
    return Manifests(store.documents)


def test_a_manifest_is_published_superseded_and_withdrawn(manifests: Manifests) -> None:
    assert manifests.read(KEY) is None
    place = manifests.publish(FIRST)
    assert place.endswith("/.documents/flights/2013-08-03.1.json")
    manifests.publish(FIRST)
    assert manifests.read(KEY) == FIRST

    manifests.publish(SECOND)
    assert (manifests.read(KEY), manifests.read(SECOND.key)) == (None, SECOND)

    manifests.withdraw(SECOND.key, "wrong")
    manifests.withdraw(SECOND.key, "wrong")
    assert manifests.read(SECOND.key) is None
    manifests.publish(SECOND)  # by somebody who wakes up late
    assert manifests.read(SECOND.key) is None
    assert manifests.is_withdrawn(SECOND.key)
    assert not manifests.is_withdrawn(KEY)


def test_publishing_that_is_killed_anywhere_leaves_it_whole_or_absent(
    manifests: Manifests,
) -> None:
    number = 0
    while killed_at(number, lambda: manifests.publish(FIRST) and None) is not None:
        assert manifests.read(KEY) in (None, FIRST)
        manifests.publish(FIRST)
        assert manifests.read(KEY) == FIRST
        manifests._documents.remove("flights", ["2013-08-03.1.json"])
        number += 1
    assert number > 10


def test_a_withdrawal_that_is_killed_anywhere_is_completed_by_the_next(
    manifests: Manifests,
) -> None:
    number = 0
    manifests.publish(FIRST)
    while killed_at(number, lambda: manifests.withdraw(KEY, "wrong")) is not None:
        assert manifests.read(KEY) in (None, FIRST)
        manifests.withdraw(KEY, "wrong")
        assert manifests.read(KEY) is None
        manifests._documents.remove("flights", ["2013-08-03.1.withdrawn"])
        manifests.publish(FIRST)
        number += 1
    assert number > 10


def test_a_process_that_is_stopped_anywhere_publishes_nothing_after_the_withdrawal(
    manifests: Manifests,
) -> None:
    number = 0
    while True:
        act = stopping_at(number, lambda: manifests.publish(FIRST) and None)
        with child(act) as late:
            if not late.stops():
                break
            manifests.withdraw(KEY, "wrong")
            late.go_on()
            late.exit_code()
        assert manifests.read(KEY) is None
        manifests._documents.remove("flights", ["2013-08-03.1.withdrawn", "2013-08-03.1.json"])
        number += 1
    assert number > 10
