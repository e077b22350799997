"""Rows and manifests of released days are mended from the files, never the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.errors import ReleaseError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.resources.operations import hold
from backfill_assets_tests.resources.release_world import KEY, World
from backfill_assets_tests.resources.small_project import DAY_1, DAY_2, SHOPS
from backfill_assets_tests.stores.examples import files_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.resources.releases import Releasing
    from backfill_assets_tests.resources.release_world import Subscriber

LYON_SOLD = "shops/article/sold/2024-03-01/Lyon"
OF_LYON_SOLD = "day = '2024-03-01' AND value_type = 'sold' AND unit = 'Lyon'"
MANIFEST = ".documents/shops/2024-03-01.1.json"


def execute(statement: str) -> Callable[[World], object]:
    return lambda world: world.execute(statement)


def cut_manifest(world: World) -> None:
    path = world.root / MANIFEST
    path.write_bytes(path.read_bytes()[:100])


DAMAGE: dict[str, tuple[Callable[[World], object], dict[str, int]]] = {
    "a value was changed": (
        execute(f"UPDATE published_values SET value = 7 WHERE {OF_LYON_SOLD}"),  # noqa: S608
        {"other content than the file": 1},
    ),
    "a row was deleted": (
        execute(f"DELETE FROM published_values WHERE {OF_LYON_SOLD} AND position = 0"),  # noqa: S608
        {"another number of rows than the file": 1},
    ),
    "rows were put into another order": (
        execute(f"UPDATE published_values SET position = 9 WHERE {OF_LYON_SOLD} AND position = 0"),  # noqa: S608
        {"other content than the file": 1},
    ),
    "a partition was deleted": (
        execute(f"DELETE FROM published_partition WHERE {OF_LYON_SOLD}"),  # noqa: S608
        {"file without rows": 1},
    ),
    "all rows of the day were deleted": (
        execute("DELETE FROM published_day WHERE day = '2024-03-01'"),
        {"file without rows": 4},
    ),
    "the manifest was deleted": (
        lambda world: (world.root / MANIFEST).unlink(),
        {"no whole manifest": 1},
    ),
    "the manifest was cut short": (cut_manifest, {"no whole manifest": 1}),
}


@pytest.fixture
def releasing(world: World, subscriber: Subscriber) -> Releasing:
    """A day is released; another one is complete, and is not."""
    world.fill(DAY_1, DAY_2)
    world.subscribers = (subscriber.url,)
    made = world.releasing()
    assert made.release(KEY, who="ada").status is SagaStatus.COMPLETED
    return made


def counts(releasing: Releasing) -> dict[str, int]:
    return {kind: len(names) for kind, names in releasing.reconcile(SHOPS).by_fault().items()}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_was_damaged_is_found_and_mended_from_the_files(
    world: World, releasing: Releasing, subscriber: Subscriber, name: str
) -> None:
    rows, files = world.rows(), files_below(world.root)
    damage, expected = DAMAGE[name]
    damage(world)

    assert counts(releasing) == expected
    assert counts(releasing) == expected  # to look changes nothing
    agreement = releasing.reconcile(SHOPS, repair=True)

    assert len(agreement.repairs) == 1
    assert counts(releasing) == {}
    assert (world.rows(), files_below(world.root)) == (rows, files)
    assert len(subscriber.heard) == 1  # what was released is what stands
    # Mended rows are the release's as before: they can be taken back.
    (saga,) = releasing.retract("shops", DAY_1, who="eve", why="wrong")
    assert saga.status is SagaStatus.COMPENSATED
    assert world.rows() == []


def test_a_file_that_went_takes_its_rows_along_until_it_is_back(
    world: World, releasing: Releasing
) -> None:
    rows = world.rows()
    (world.root / "shops/article/sold/v1/2024-03-01/Lyon.parquet").unlink()
    assert counts(releasing) == {"rows without a file": 1}

    releasing.reconcile(SHOPS, repair=True)
    assert len(world.rows()) == 6
    assert counts(releasing) == {"manifest of other content": 1}

    world.fill(DAY_1)
    assert counts(releasing) == {"file without rows": 1}
    releasing.reconcile(SHOPS, repair=True)
    assert world.rows() == rows
    assert counts(releasing) == {}


def test_a_partition_that_a_person_holds_is_not_shown_any_more(
    world: World, releasing: Releasing
) -> None:
    hold(world.project, "shops/article/sold/2024-03-01/Lyon", "wrong")
    assert releasing.reconcile(SHOPS).by_fault() == {"rows without a file": [LYON_SOLD]}
    releasing.reconcile(SHOPS, repair=True)
    assert len(world.rows()) == 6


def test_a_day_that_was_made_again_is_released_anew(
    world: World, releasing: Releasing, subscriber: Subscriber
) -> None:
    world.make_again(DAY_1, factor=3)
    assert counts(releasing) == {"file made again since the release": 4}

    agreement = releasing.reconcile(SHOPS, repair=True)

    assert agreement.repairs == [
        "shops/2024-03-01: released anew by release_day/shops/2024-03-01/2, which is COMPLETED"
    ]
    assert counts(releasing) == {}
    assert [body["round"] for _, body in subscriber.heard] == [1, 2]


def test_a_damaged_file_is_named_and_its_rows_are_left_alone(
    world: World, releasing: Releasing
) -> None:
    rows = world.rows()
    (world.root / "shops/article/sold/v1/2024-03-01/Lyon.parquet").write_bytes(b"PAR1 no more")
    found = releasing.reconcile(SHOPS, repair=True).by_fault()
    assert list(found) == ["file that cannot be read"]
    assert found["file that cannot be read"][0].startswith(LYON_SOLD)
    assert world.rows() == rows


def test_rows_that_nobody_released_are_removed(world: World, releasing: Releasing) -> None:
    world.execute(
        "INSERT INTO published_day VALUES ('shops', '2024-03-02', 'release_day/x', 1, now())"
    )
    assert releasing.reconcile(SHOPS).by_fault() == {
        "rows that no release stands for": ["shops/2024-03-02: release_day/x"]
    }
    releasing.reconcile(SHOPS, repair=True)
    assert counts(releasing) == {}
    assert len(world.rows()) == 8


def test_a_day_whose_release_is_on_its_way_is_left_out(world: World) -> None:
    world.fill(DAY_1)
    world.dies_at("write_manifest.before", lambda r: r.release(KEY, who="ada"))
    releasing = world.releasing()
    assert releasing.reconcile(SHOPS, repair=True).findings == []
    assert len(world.rows()) == 8


def test_mending_leaves_alone_what_was_retracted_meanwhile(
    world: World, releasing: Releasing
) -> None:
    contents = [releasing.actions.content(p) for p in world.committed()]
    releasing.retract("shops", DAY_1, who="eve", why="wrong")
    with pytest.raises(ReleaseError, match="does not stand; look again"):
        releasing.actions.rows.mend(KEY, contents, [], world.clock())
    assert world.rows() == []
