"""The outbox: written with the change, delivered at least once, in order, under one key."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from backfill_assets.core.errors import SettingsError
from backfill_assets.stores.log.alerts import write_alert
from backfill_assets.stores.sagas.alerts import AlertDelivery
from backfill_assets.stores.sagas.targets import LoggingTarget, WebhookTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.stores.log.alerts import Alert
    from backfill_assets_tests.stores.sagas.trip import World


@dataclass
class Inbox:
    """A target that can be down, or die before it is known that something arrived."""

    name: str = "inbox"
    came: list[str] = field(default_factory=list)
    is_down: bool = False

    def deliver(self, alert: Alert) -> None:
        if self.is_down:
            raise ConnectionRefusedError("nobody is there")
        self.came.append(alert.dedup_key)


class KilledError(BaseException):
    """Stands for the end of the process."""


@contextmanager
def delivery(world: World, *targets: Any, worker: str = "one") -> Iterator[AlertDelivery]:
    made = AlertDelivery(lambda: world.url, targets, worker=worker, clock=world.clock)
    yield made
    made.close()


def raise_alerts(world: World, *keys: str) -> None:
    with psycopg.connect(world.url) as connection:
        for key in keys:
            write_alert(connection, key, f"subject of {key}", {"key": key}, world.clock())


def test_every_target_gets_every_alert_once_and_in_order(world: World) -> None:
    raise_alerts(world, "c", "a", "b", "a")
    one, other = Inbox("one"), Inbox("other")
    with delivery(world, one, other) as outbox:
        outbox.deliver()
        raise_alerts(world, "d")
        outbox.deliver()
    assert one.came == ["c", "a", "b", "d"]
    assert other.came == one.came


def test_a_target_that_is_down_for_hours_misses_nothing_and_keeps_nobody_waiting(
    world: World,
) -> None:
    raise_alerts(world, "a", "b")
    broken, sound = Inbox("broken", is_down=True), Inbox("sound")
    with delivery(world, broken, sound) as outbox:
        for number in range(30):
            world.clock.pass_by(minutes=10)
            raise_alerts(world, f"later {number:02}")
            outbox.deliver()
        assert sound.came[:2] == ["a", "b"]
        assert len(sound.came) == 32
        broken.is_down = False
        world.clock.pass_by(minutes=10)
        while outbox.deliver():
            pass
    assert broken.came == sound.came


def test_a_target_that_refused_is_left_alone_for_a_while(world: World) -> None:
    raise_alerts(world, "a")
    inbox = Inbox(is_down=True)
    with delivery(world, inbox) as outbox:
        outbox.deliver()
        inbox.is_down = False
        assert outbox.deliver() == []
        world.clock.pass_by(seconds=10)
        assert [d.dedup_key for d in outbox.deliver()] == ["a"]


def test_an_alert_whose_sender_dies_before_it_is_marked_comes_again_under_its_key(
    world: World,
) -> None:
    raise_alerts(world, "a", "b")

    class Dying(Inbox):
        def deliver(self, alert: Alert) -> None:
            super().deliver(alert)
            if len(self.came) == 1:
                raise KilledError

    inbox = Dying()
    with delivery(world, inbox) as first, pytest.raises(KilledError):
        first.deliver()
    with delivery(world, inbox, worker="two") as second:
        assert second.deliver() == []  # the dead one is believed until its lease is over
        world.clock.pass_by(minutes=1)
        second.deliver()
    assert inbox.came == ["a", "a", "b"]


def test_two_senders_do_not_serve_a_target_at_the_same_time(world: World) -> None:
    raise_alerts(world, "a", "b")
    seen: list[object] = []

    class Asking(Inbox):
        def deliver(self, alert: Alert) -> None:
            super().deliver(alert)
            with delivery(world, Inbox(), worker="two") as other:
                seen.append(other.deliver())

    inbox = Asking()
    with delivery(world, inbox) as outbox:
        outbox.deliver()
    assert (inbox.came, seen) == (["a", "b"], [[], []])


def test_an_alert_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    raise_alerts(world, "a")
    with delivery(world, LoggingTarget(logging.getLogger("alerts"))) as outbox:
        outbox.deliver()
    assert caplog.messages == ['subject of a [a] {"key": "a"}']


def test_a_webhook_gets_json_and_the_key_and_one_that_answers_500_gets_it_again(
    world: World,
) -> None:
    raise_alerts(world, "a")
    answers = [500, 204]
    came: list[tuple[str | None, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append((self.headers["Idempotency-Key"], content))
            self.send_response(answers.pop(0))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        target = WebhookTarget(f"http://127.0.0.1:{server.server_port}/alerts")
        with delivery(world, target) as outbox:
            assert outbox.deliver() == []
            world.clock.pass_by(minutes=1)
            assert [d.dedup_key for d in outbox.deliver()] == ["a"]
        server.shutdown()
        thread.join()
    expected = {
        "dedup_key": "a",
        "subject": "subject of a",
        "raised_at": "2013-08-03T12:00:00+00:00",
        "body": {"key": "a"},
    }
    assert came == [("a", expected)] * 2


def test_a_webhook_that_is_no_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="expected an address that begins with http"):
        WebhookTarget("file:///etc/passwd")
