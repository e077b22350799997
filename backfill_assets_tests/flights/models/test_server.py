"""What the model server answers, besides what every idempotent endpoint does."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from backfill_assets.flights.models.address import read_address
from backfill_assets.flights.models.server import SERVICE, make_app
from backfill_assets.stores.http_calls import is_answering
from backfill_assets.stores.http_replies import StoredReplies
from backfill_assets.stores.http_serving import serve
from backfill_assets.stores.postgres.ports import free_port
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.stores.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets_tests.flights.models.workbench import Workbench

SECONDS = 20


@pytest.fixture
def url(workbench: Workbench) -> Iterator[str]:
    with workbench.server() as (host, port):
        yield f"http://{host}:{port}"


def post(url: str, path: str, body: Any, key: str = '"k"') -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, headers={"Idempotency-Key": key}, timeout=SECONDS)


def test_it_scores_rows_as_the_models_do_and_replays_the_answer(
    workbench: Workbench, url: str
) -> None:
    card = workbench.card
    body = {"model": card.version, "rows": card.probes["rows"]}
    risk = post(url, "/v1/risk", body, '"a"')
    assert (risk.status_code, risk.json()) == (
        200,
        {"model": card.version, "scores": card.probes["risks"]},
    )
    anomaly = post(url, "/v1/anomaly", body, '"b"').json()
    assert anomaly == {"model": card.version, "scores": card.probes["anomalies"]}
    again = post(url, "/v1/risk", body, '"a"')
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == risk.json()
    assert httpx.get(f"{url}/health", timeout=SECONDS).json() == {"status": "ok"}


def test_an_unknown_version_is_a_404_that_names_it(url: str) -> None:
    answer = post(url, "/v1/risk", {"model": "abc123", "rows": []})
    assert answer.status_code == 404
    assert "no models of version 'abc123'" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"rows": []},
        {"model": 1, "rows": []},
        {"model": "VERSION"},
        {"model": "VERSION", "rows": [[1], [1, 2]]},
        {"model": "VERSION", "rows": [[True] * 17]},
        {"model": "VERSION", "rows": [["text"] * 17]},
        {"model": "VERSION", "rows": [[1.0] * 16]},
        {"model": "VERSION", "rows": [[1.0] * 17] * 10_001},
    ],
)
def test_a_malformed_request_is_a_400_that_says_what_was_expected(
    workbench: Workbench, url: str, body: Any
) -> None:
    if isinstance(body, dict) and body.get("model") == "VERSION":
        body = {**body, "model": workbench.card.version}
    answer = post(url, "/v1/risk", body)
    assert (answer.status_code, answer.json()["title"]) == (400, "Malformed request")


def test_no_rows_have_no_scores(workbench: Workbench, url: str) -> None:
    answer = post(url, "/v1/anomaly", {"model": workbench.card.version, "rows": []})
    assert (answer.status_code, answer.json()["scores"]) == (200, [])


def test_it_listens_where_it_is_told_says_so_and_ends_when_it_is_asked(
    workbench: Workbench,
) -> None:
    port, address = free_port(), workbench.home / "address.json"
    app = make_app(StoredReplies(lambda: workbench.url, SERVICE), workbench.folder)
    child = Child(lambda: serve(app, port, address))
    url = f"http://127.0.0.1:{port}"
    wait_for("the server", lambda: is_answering(f"{url}/health"), seconds=SECONDS)
    assert read_address(address) == url
    os.kill(child.pid, signal.SIGTERM)
    assert child.exit_code() in {0, -signal.SIGTERM}
