"""A server that does each request once: the four answers of the draft, crashes, and its client.

The server under test books rooms: each request writes a row in the transaction of its reply.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from backfill_assets.core.errors import NotAppliedError, RemoteError, RemoteUnreachableError
from backfill_assets.stores.http_calls import Caller
from backfill_assets.stores.http_replies import InProgress, Reply, StoredReplies
from backfill_assets.stores.idempotent_http import idempotent, problem, quoted
from backfill_assets.stores.postgres.ports import free_port
from backfill_assets_tests.stores.children import Child
from backfill_assets_tests.stores.serving import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.core.operations import Json

ROOM = {"room": "blue"}
KEY = '"one"'
SECONDS = 20


class Hotel:
    """A server with one endpoint, in a thread of the test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies = StoredReplies(lambda: url, "hotel")
        self.before_reply: Callable[[], None] = lambda: None
        self.address = ""
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS booking (room text NOT NULL)")

    def book(self, connection: psycopg.Connection, body: Json) -> Reply:
        assert isinstance(body, dict)
        if body["room"] == "none":
            return problem(404, "No such room", "there is no such room")
        if body["room"] == "burning":
            raise RuntimeError("the house burns")
        connection.execute("INSERT INTO booking (room) VALUES (%s)", [body["room"]])
        self.before_reply()
        return Reply(201, {"booked": body["room"]})

    @property
    def rooms(self) -> list[str]:
        with psycopg.connect(self.url) as connection:
            return [room for (room,) in connection.execute("SELECT room FROM booking")]

    def post(self, key: str | None, body: Any = ROOM) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return httpx.post(f"{self.address}/rooms", json=body, headers=headers, timeout=SECONDS)

    @contextmanager
    def open(self) -> Iterator[Hotel]:
        endpoint = idempotent(self.replies, self.book)
        app = Starlette(routes=[Route("/rooms", endpoint, methods=["POST"])])
        with closing(self.replies), served(app) as (host, port):
            self.address = f"http://{host}:{port}"
            yield self


@pytest.fixture
def hotel(database: str) -> Iterator[Hotel]:
    with Hotel(database).open() as hotel:
        yield hotel


@pytest.mark.parametrize(
    "key", [None, "", "one", '""', '"with "quotes""', '"a\\b"', f'"{"x" * 201}"']
)
def test_without_a_key_in_quotes_a_request_is_refused(hotel: Hotel, key: str | None) -> None:
    answer = hotel.post(key)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["title"] == "Idempotency-Key is missing"
    assert hotel.rooms == []


def test_a_duplicate_gets_the_stored_reply_and_nothing_is_done_again(hotel: Hotel) -> None:
    first, again = hotel.post(KEY), hotel.post(KEY)
    assert (first.status_code, first.json()) == (201, {"booked": "blue"})
    assert (again.status_code, again.json()) == (201, {"booked": "blue"})
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert hotel.rooms == ["blue"]


def test_the_same_key_with_another_request_is_refused(hotel: Hotel) -> None:
    hotel.post(KEY)
    answer = hotel.post(KEY, {"room": "red"})
    assert (answer.status_code, answer.json()["title"]) == (422, "Idempotency-Key is already used")
    assert hotel.rooms == ["blue"]


def test_while_the_first_is_at_work_a_duplicate_is_told_so(hotel: Hotel) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        at_work.set()
        assert go_on.wait(SECONDS)

    hotel.before_reply = wait
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(hotel.post, KEY)
        assert at_work.wait(SECONDS)
        duplicate = hotel.post(KEY)
        go_on.set()
        assert first.result(SECONDS).status_code == 201
    assert duplicate.status_code == 409
    assert duplicate.headers["Retry-After"] == "1"
    assert hotel.rooms == ["blue"]


def test_of_many_at_once_one_is_done(hotel: Hotel) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: hotel.post(KEY).status_code, range(24)))
    assert set(answers) <= {201, 409}
    assert 201 in answers
    assert hotel.rooms == ["blue"]


def test_many_at_once_may_make_the_table(database: str) -> None:
    for _ in range(10):
        with psycopg.connect(database) as connection:
            connection.execute("DROP TABLE IF EXISTS http_reply")
        with closing(StoredReplies(lambda: database, "hotel")) as replies:
            together = threading.Barrier(8)

            def ask(one: int, replies: StoredReplies = replies, together: Any = together) -> object:
                together.wait(SECONDS)
                return replies.answer(str(one), "", lambda _: Reply(201, one))

            with ThreadPoolExecutor(8) as threads:
                assert list(threads.map(ask, range(8))) == [Reply(201, one) for one in range(8)]


def test_refusals_and_errors_leave_nothing_and_may_be_sent_again(hotel: Hotel) -> None:
    assert hotel.post(KEY, {"room": "none"}).status_code == 404
    assert hotel.post(KEY, {"room": "burning"}).status_code == 500
    assert hotel.post(KEY).status_code == 201
    assert hotel.rooms == ["blue"]


def test_a_body_that_is_no_json_is_refused(hotel: Hotel) -> None:
    answer = httpx.post(
        f"{hotel.address}/rooms", content=b"{", headers={"Idempotency-Key": KEY}, timeout=SECONDS
    )
    assert (answer.status_code, answer.json()["title"]) == (400, "The body is no JSON")


def test_keys_of_other_services_do_not_meet(hotel: Hotel) -> None:
    hotel.post(KEY)
    other = StoredReplies(lambda: hotel.url, "another hotel")
    assert other.answer("one", "else", lambda _: Reply(200, "new")) == Reply(200, "new")
    other.close()


def test_a_server_killed_before_its_commit_leaves_neither_effect_nor_key(database: str) -> None:
    hotel = Hotel(database)

    def dies() -> object:
        hotel.before_reply = lambda: os.kill(os.getpid(), signal.SIGKILL)
        return hotel.replies.answer("one", "print", lambda c: hotel.book(c, ROOM))

    assert Child(dies).exit_code() == -signal.SIGKILL
    assert hotel.rooms == []
    answer = hotel.replies.answer("one", "print", lambda c: hotel.book(c, ROOM))
    hotel.replies.close()
    assert answer == Reply(201, {"booked": "blue"})
    assert hotel.rooms == ["blue"]


def test_a_server_that_was_stopped_holds_its_key_until_it_goes_on(database: str) -> None:
    hotel = Hotel(database)

    def stops() -> object:
        hotel.before_reply = lambda: os.kill(os.getpid(), signal.SIGSTOP)
        return hotel.replies.answer("one", "print", lambda c: hotel.book(c, ROOM))

    child = Child(stops)
    child.wait_until_stopped()
    assert hotel.replies.answer("one", "print", lambda c: hotel.book(c, ROOM)) == InProgress()
    child.go_on()
    assert child.answer() == Reply(201, {"booked": "blue"})
    hotel.replies.close()
    assert hotel.rooms == ["blue"]


def test_a_lost_database_is_a_503_and_the_next_request_opens_another_connection(
    hotel: Hotel,
) -> None:
    hotel.post('"before"', {"room": "red"})

    def cut() -> None:
        hotel.before_reply = lambda: None
        with psycopg.connect(hotel.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    hotel.before_reply = cut
    assert hotel.post(KEY).status_code == 503
    assert hotel.post(KEY).status_code == 201
    assert sorted(hotel.rooms) == ["blue", "red"]


def test_the_caller_tells_definite_failures_from_unknown_ones(hotel: Hotel) -> None:
    with Caller("the hotel", lambda: hotel.address, answer_seconds=SECONDS) as caller:
        assert caller.post("/rooms", "one", ROOM) == {"booked": "blue"}
        with pytest.raises(NotAppliedError, match=r"the hotel, /rooms: 422 .*already used"):
            caller.post("/rooms", "one", {"room": "red"})
        with pytest.raises(NotAppliedError, match="404"):
            caller.post("/rooms", "two", {"room": "none"})
        with pytest.raises(RemoteError, match="500"):
            caller.post("/rooms", "three", {"room": "burning"})
    with (
        Caller("the hotel", lambda: f"http://127.0.0.1:{free_port()}", answer_seconds=1) as nobody,
        pytest.raises(RemoteUnreachableError, match="the hotel does not answer"),
    ):
        nobody.post("/rooms", "four", ROOM)


def test_a_reply_that_takes_too_long_is_unknown_and_the_same_key_finds_out(hotel: Hotel) -> None:
    go_on = threading.Event()
    hotel.before_reply = lambda: go_on.wait(SECONDS) and None
    with (
        Caller("the hotel", lambda: hotel.address, answer_seconds=0.1) as hasty,
        pytest.raises(RemoteError, match="it may have been done"),
    ):
        hasty.post("/rooms", "one", ROOM)
    with Caller("the hotel", lambda: hotel.address, answer_seconds=SECONDS) as patient:
        with pytest.raises(RemoteError, match="409"):  # at work: not a refusal
            patient.post("/rooms", "one", ROOM)
        go_on.set()
        answer = _until_done(patient)
    assert answer == {"booked": "blue"}
    assert hotel.rooms == ["blue"]


def _until_done(caller: Caller) -> Json:
    for _ in range(1000):
        try:
            return caller.post("/rooms", "one", ROOM)
        except RemoteError:
            continue
    pytest.fail("the first request does not end")


@pytest.mark.parametrize("key", ["", 'a"b', "a\\b", "é", "x" * 201])
def test_a_key_that_the_header_cannot_carry_is_refused_before_it_is_sent(key: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 200 plain characters"):
        quoted(key)
