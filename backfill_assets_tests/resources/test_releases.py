"""A day is released as a whole or not at all, and taken back the same way."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from backfill_assets.core.errors import NotAppliedError, ReleaseError
from backfill_assets.core.releases import HoldDay, ReleaseKey, StartRound, partitions_of_day
from backfill_assets.core.sagas import Choice, SagaStatus
from backfill_assets.resources.operations import release as let_go
from backfill_assets_tests.resources.release_world import KEY, World
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_3,
    DAY_4,
    DAY_5,
    SHOPS,
    SOLD,
)
from backfill_assets_tests.stores.children import child
from backfill_assets_tests.stores.crash_points import killed_at

if TYPE_CHECKING:
    from backfill_assets.resources.releases import Releasing
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets_tests.resources.release_world import Subscriber

# Two shops, two value types, two articles; `Shops` says what the values are.
ROWS_OF_DAY_1 = [
    ("article", "revenue", "Lyon", "A0", 52.0),
    ("article", "revenue", "Lyon", "A1", 52.5),
    ("article", "revenue", "Paris", "A0", 52.5),
    ("article", "revenue", "Paris", "A1", 53.0),
    ("article", "sold", "Lyon", "A0", 104.0),
    ("article", "sold", "Lyon", "A1", 105.0),
    ("article", "sold", "Paris", "A0", 105.0),
    ("article", "sold", "Paris", "A1", 106.0),
]
SECOND = KEY.following


def release(releasing: Releasing) -> Saga:
    return releasing.release(KEY, who="ada")


def retract(releasing: Releasing) -> list[Saga]:
    return releasing.retract("shops", DAY_1, who="eve", why="the till was wrong")


def is_released(world: World) -> bool:
    """Return whether everything of the release stands; neither all nor nothing is a failure."""
    manifest = world.manifest()
    parts = {
        "rows": world.rows() == ROWS_OF_DAY_1,
        "manifest": manifest is not None and manifest.rows == 8 and len(manifest.records) == 4,
        "files": len(world.committed()) == 4,
    }
    assert len(set(parts.values())) == 1, parts
    if not parts["rows"]:
        assert (world.rows(), world.held()) == ([], 4)
        assert world.execute("SELECT 1 FROM published_partition WHERE day = %s", DAY_1) == []
    return parts["rows"]


def test_a_complete_day_is_released_with_rows_manifest_and_notice(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)

    assert release(world.releasing()).status is SagaStatus.COMPLETED

    assert is_released(world)
    ((key, body),) = subscriber.heard
    assert key == "notify_subscribers.do:release_day/shops/2024-03-01"
    manifest = world.manifest()
    assert body == {
        "event": "day_released",
        "catalogue": "shops",
        "day": "2024-03-01",
        "round": 1,
        "release": key,
        "loaded": {"partitions": 4, "rows": 8, "digest": manifest.digest},
        "manifest": str(world.root / ".documents" / "shops" / "2024-03-01.1.json"),
    }


def test_without_subscribers_telling_them_succeeds_with_none(world: World) -> None:
    world.fill()
    releasing = world.releasing()
    release(releasing)
    trail = {t.state.operation: t.state.result for t in releasing.log.trail(KEY.saga_id)}
    assert trail["notify_subscribers.do"] == {"told": 0}


def test_a_day_that_is_not_complete_is_refused(world: World) -> None:
    world.fill(DAY_2)
    with pytest.raises(ReleaseError, match="0 of 4 expected partitions are committed"):
        release(world.releasing())
    with pytest.raises(ReleaseError, match="0 of 0 expected partitions"):  # it has not closed
        world.releasing().release(ReleaseKey("shops", DAY_5 + timedelta(days=1)), who="ada")
    assert world.execute("SELECT 1 FROM saga") == []


def test_a_retracted_day_is_taken_back_held_and_told_of(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    releasing = world.releasing()
    release(releasing)
    world.subscribers = ()  # whoever was told of the release is told of its retraction

    (saga,) = retract(world.releasing("other"))

    assert saga.status is SagaStatus.COMPENSATED
    assert not is_released(world)
    assert subscriber.told() == [
        ("day_released", "2024-03-01"),
        ("day_retracted", "2024-03-01"),
    ]
    body = subscriber.heard[-1][1]
    assert body["release"] == subscriber.heard[0][0]
    assert body["why"] == "the till was wrong"
    reason = "release_day/shops/2024-03-01 was retracted: the till was wrong"
    partition = SHOPS.partition("article/sold", DAY_1, "Paris")
    assert world.project.store.hold_reason(partition) == reason
    # Other days are as they were, and it is neither made nor released again by itself.
    assert len(world.committed(DAY_2)) == 6
    assert not world.plan().missing
    assert DAY_1 not in {step.key.day for step in releasing.next_steps(world.plan())}


def test_a_day_that_is_not_released_cannot_be_retracted(world: World) -> None:
    world.fill()
    with pytest.raises(ReleaseError, match="is not released"):
        retract(world.releasing())
    with pytest.raises(ReleaseError, match="needs a reason"):
        world.releasing().retract("shops", DAY_1, who="eve", why=" ")
    release(world.releasing())
    retract(world.releasing())
    with pytest.raises(ReleaseError, match="is not released"):
        retract(world.releasing())


def test_a_day_let_go_after_its_retraction_is_made_and_released_in_a_new_round(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    releasing = world.releasing()
    release(releasing)
    retract(releasing)

    let_go(world.project, "shops/*/*/2024-03-01/*")
    world.fill()
    steps = [step for step in releasing.next_steps(world.plan()) if step.key.day == DAY_1]
    assert steps == [StartRound(SECOND)]
    assert releasing.release(SECOND, who="ada").status is SagaStatus.COMPLETED

    assert world.rows() == ROWS_OF_DAY_1
    assert world.manifest() is None
    assert world.manifest(SECOND).rows == 8
    assert [event for event, _ in subscriber.told()] == [
        "day_released",
        "day_retracted",
        "day_released",
    ]


def test_the_newest_complete_days_are_next_and_what_is_released_is_not(world: World) -> None:
    world.fill(DAY_1, DAY_3, DAY_5)
    releasing = world.releasing()
    assert [step.key.day for step in releasing.next_steps(world.plan())] == [DAY_5, DAY_3, DAY_1]
    releasing.release(ReleaseKey("shops", DAY_3), who="ada")
    assert [step.key.day for step in releasing.next_steps(world.plan())] == [DAY_5, DAY_1]


FORWARD = [
    "load_rows.before",
    "load_rows.after",  # rows written, and not committed
    "write_manifest.before",  # rows committed, no manifest
    "write_manifest.after",  # the manifest stands, and nobody has written that down
    "notify_subscribers.before",
    "notify_subscribers.after",
]
BACK = [
    "take_rows_back.before",
    "take_rows_back.after",
    "withdraw_manifest.before",  # no rows, and a manifest
    "withdraw_manifest.after",  # no manifest, the partitions held, and nobody has written that down
    "tell_of_retraction.before",
    "tell_of_retraction.after",
]


@pytest.mark.parametrize("point", FORWARD)
def test_a_release_that_is_killed_is_finished_by_another_process(
    world: World, subscriber: Subscriber, point: str
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    world.dies_at(point, release)

    (saga,) = world.recover()

    assert saga.status is SagaStatus.COMPLETED
    assert is_released(world)
    assert subscriber.told() == [("day_released", "2024-03-01")]
    assert world.releasing().reconcile(SHOPS).findings == []


@pytest.mark.parametrize("point", FORWARD)
def test_a_release_that_is_killed_can_be_retracted_at_once(
    world: World, subscriber: Subscriber, point: str
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    world.dies_at(point, release)

    (saga,) = retract(world.releasing("other"))

    assert saga.status is SagaStatus.COMPENSATED
    assert not is_released(world)
    was_told = point == "notify_subscribers.after"
    assert ("day_released", "2024-03-01") in subscriber.told() or not was_told
    assert (subscriber.told()[-1:] == [("day_retracted", "2024-03-01")]) == point.startswith(
        "notify"
    )


@pytest.mark.parametrize("point", BACK)
def test_a_retraction_that_is_killed_is_finished_by_another_process(
    world: World, subscriber: Subscriber, point: str
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    release(world.releasing())
    world.dies_at(point, retract)

    (saga,) = world.recover()

    assert saga.status is SagaStatus.COMPENSATED
    assert not is_released(world)
    assert subscriber.told()[1:] == [("day_retracted", "2024-03-01")]
    assert world.releasing().reconcile(SHOPS).findings == []


def test_a_hold_that_is_killed_half_way_is_completed(world: World) -> None:
    """Killed at each call with which the withdrawal touches the files."""
    world.fill()
    key, number = KEY, 0
    release(world.releasing())
    while killed_at(number, lambda: _withdraw(world)) is not None:
        _withdraw(world)
        assert world.manifest(key) is None
        assert world.held() == 4
        let_go(world.project, "shops/*/*/2024-03-01/*")
        world.fill()
        (world.root / ".documents" / "shops" / "2024-03-01.1.withdrawn").unlink()
        world.releasing().actions.publish_manifest(key)
        number += 1
    assert number > 10


def _withdraw(world: World) -> None:
    actions = world.releasing().actions
    actions.manifests.withdraw(KEY, "why")
    actions.hold(KEY, "why")
    world.close()


def test_a_process_that_wakes_up_after_the_retraction_changes_nothing(world: World) -> None:
    """It is stopped before its manifest, after its rows; everything is over when it goes on."""
    world.fill()
    late = world.releasing("late")

    def sleep_over_it() -> None:
        world.clock.pass_by(minutes=5)
        (saga,) = retract(world.releasing("other"))
        assert saga.status is SagaStatus.COMPENSATED

    world.hooks["write_manifest.before"] = [sleep_over_it]
    release(late)

    assert not is_released(world)
    world.hooks["write_manifest.before"] = []
    # Had it been stopped a moment later, it would have written after the withdrawal.
    late.actions.store.documents.write("shops", {"2024-03-01.1.json": "{}"})
    assert world.manifest() is None


def test_rows_that_somebody_changed_are_left_alone_and_a_person_is_asked(world: World) -> None:
    world.fill()
    release(world.releasing())
    world.execute(
        "UPDATE published_values SET value = 7 WHERE day = %s AND unit = 'Lyon' AND position = 0"
        " AND value_type = 'sold'",
        DAY_1,
    )

    (saga,) = retract(world.releasing())

    assert saga.status is SagaStatus.AWAITING_DECISION
    ((body,),) = world.execute("SELECT body FROM alert")
    assert "shops/article/sold/2024-03-01/Lyon" in body["question"]
    # Rows come first: until somebody decides, the day is what its readers see.
    assert len(body["still_applied"]) == 3
    assert (len(world.rows()), world.manifest().rows, world.held()) == (8, 8, 0)

    releasing = world.releasing()
    releasing.sagas.decide(
        KEY.saga_id, saga.version, Choice.ACCEPT, who="eve", why="the value is right"
    )
    assert releasing.sagas.run(KEY.saga_id).status is SagaStatus.COMPENSATED
    assert (len(world.rows()), world.manifest(), world.held()) == (8, None, 4)
    assert releasing.reconcile(SHOPS).by_fault() == {
        "rows that no release stands for": ["shops/2024-03-01: release_day/shops/2024-03-01"]
    }
    releasing.reconcile(SHOPS, repair=True)
    assert world.rows() == []


def test_a_subscriber_that_is_down_does_not_take_the_release_back(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    subscriber.refusing = 10
    releasing = world.releasing()
    release(releasing)

    saga = releasing.sagas.run(KEY.saga_id, patience=timedelta(hours=2))

    assert saga.status is SagaStatus.AWAITING_DECISION
    assert is_released(world)
    assert {key for key, _ in subscriber.heard} == {
        "notify_subscribers.do:release_day/shops/2024-03-01"
    }
    assert [step.key.day for step in releasing.next_steps(world.plan())] == [
        DAY_5,
        DAY_4,
        DAY_3,
        DAY_2,
    ]
    releasing.sagas.decide(KEY.saga_id, saga.version, Choice.RETRY, who="eve", why="it is up")
    assert releasing.sagas.run(KEY.saga_id).status is SagaStatus.COMPLETED


def damage(world: World) -> None:
    partition = SHOPS.partition(SOLD.name, DAY_1, "Paris")
    path = world.root / "shops/article/sold/v1/2024-03-01/Paris.parquet"
    assert str(path) == world.project.store.location(partition)
    path.write_bytes(b"PAR1 no more")


def test_a_day_that_is_taken_back_again_and_again_is_held_and_other_days_flow(
    world: World,
) -> None:
    world.fill()
    damage(world)
    releasing = world.releasing()
    rounds, released = [], set()
    for _ in range(40):
        for step in list(releasing.next_steps(world.plan())):
            if isinstance(step, HoldDay):
                releasing.hold_day(step)
            else:
                saga = releasing.release(step.key, who="sensor")
                rounds += [step.key.round] if step.key.day == DAY_1 else []
                released |= {step.key.day} if saga.status is SagaStatus.COMPLETED else set()
        world.clock.pass_by(minutes=1)

    assert rounds == [1, 2, 3]
    assert released == {DAY_2, DAY_3, DAY_4, DAY_5}
    assert world.rows() == []
    assert world.held() == 4
    ((subject, body),) = world.execute("SELECT subject, body FROM alert")
    assert subject.startswith("shops 2024-03-01 is held: its release was taken back 3 times: ")
    assert body["release"] == "backfill-assets release 'shops/*/*/2024-03-01/*'"

    let_go(world.project, "shops/*/*/2024-03-01/*")
    world.fill()
    (step,) = releasing.next_steps(world.plan())
    assert step == StartRound(ReleaseKey("shops", DAY_1, 4))
    assert releasing.release(step.key, who="sensor").status is SagaStatus.COMPLETED


def test_a_hold_whose_process_dies_after_the_alert_is_made_by_the_next_one(world: World) -> None:
    world.fill()
    releasing = world.releasing()
    step = HoldDay(KEY, "again and again")
    releasing.actions.rows.alert(f"held:{KEY.saga_id}", "raised before", None, world.clock())

    releasing.hold_day(step)
    let_go(world.project, "shops/*/*/2024-03-01/*")
    releasing.hold_day(step)

    assert world.held() == 0  # held once for a round; a person let it go
    assert len(world.execute("SELECT 1 FROM alert")) == 1


def test_a_person_is_told_of_a_hold_that_is_killed_before_the_first_file(world: World) -> None:
    world.fill()
    step = HoldDay(KEY, "again and again")

    def hold(releasing: Releasing) -> None:
        store: Any = releasing.project.store
        store.hold = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        releasing.hold_day(step)

    with child(lambda: hold(world.releasing("doomed"))) as doomed:
        assert doomed.exit_code() == -signal.SIGKILL
    assert len(world.execute("SELECT 1 FROM alert")) == 1
    world.clock.pass_by(minutes=5)
    world.releasing().hold_day(step)
    assert world.held() == 4
    assert len(world.execute("SELECT 1 FROM alert")) == 1


def test_rows_of_an_earlier_round_never_replace_a_later_ones(world: World) -> None:
    world.fill()
    releasing = world.releasing()
    release(releasing)
    world.make_again(DAY_1, factor=2)
    releasing.release(SECOND, who="sensor")
    contents = [releasing.actions.content(p) for p in world.committed()]
    with (
        psycopg.connect(world.url) as connection,
        pytest.raises(NotAppliedError, match="the rows of a later round stand"),
    ):
        releasing.actions.rows.load(connection, KEY, contents, world.clock())


def test_a_restated_day_is_noticed_and_released_in_a_new_round(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    releasing = world.releasing()
    release(releasing)
    assert releasing.made_again(world.plan()) == []

    world.make_again(DAY_1, factor=2)
    assert releasing.made_again(world.plan()) == [SECOND]
    assert releasing.release(SECOND, who="sensor").status is SagaStatus.COMPLETED

    assert [row[4] for row in world.rows()] == [2 * row[4] for row in ROWS_OF_DAY_1]
    assert world.manifest() is None  # of the first round
    assert world.manifest(SECOND).rows == 8
    assert [body["round"] for _, body in subscriber.heard] == [1, 2]
    assert releasing.made_again(world.plan()) == []
    assert releasing.reconcile(SHOPS).findings == []

    # To retract the day takes back what stands; the round before is history.
    (saga,) = retract(releasing)
    assert (saga.saga_id, saga.status) == (SECOND.saga_id, SagaStatus.COMPENSATED)
    assert (world.rows(), world.held()) == ([], 4)


def test_cancelling_a_round_that_was_replaced_leaves_the_day_released(
    world: World, subscriber: Subscriber
) -> None:
    world.fill()
    world.subscribers = (subscriber.url,)
    releasing = world.releasing()
    release(releasing)
    world.make_again(DAY_1, factor=2)
    releasing.release(SECOND, who="sensor")

    releasing.sagas.cancel(KEY.saga_id, who="eve", why="by mistake")
    assert releasing.sagas.run(KEY.saga_id).status is SagaStatus.COMPENSATED

    assert len(world.rows()) == 8
    assert world.manifest(SECOND).rows == 8
    assert world.held() == 0
    assert [event for event, _ in subscriber.told()] == ["day_released", "day_released"]
    assert releasing.reconcile(SHOPS).findings == []


def test_a_catalogue_is_only_asked_for_its_own_days(world: World) -> None:
    with pytest.raises(ReleaseError, match="there is no catalogue 'tills', but shops"):
        world.releasing().release(ReleaseKey("tills", DAY_1), who="ada")
    assert len(partitions_of_day(SHOPS, DAY_1)) == 4
