"""The model server: scores batches of flights over HTTP, each request once.

    POST /v1/risk, /v1/anomaly   {"model": VERSION, "rows": [[…], …]} → {"model": …, "scores": […]}
    GET  /health                 {"status": "ok"}

Where it listens stands in a file, written before it answers and anew at each start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from backfill_assets.core.errors import ModelError
from backfill_assets.flights.models.artifacts import ModelFolder, cached_loader
from backfill_assets.stores.http_replies import Reply, StoredReplies
from backfill_assets.stores.idempotent_http import idempotent, problem

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from starlette.requests import Request
    from starlette.responses import Response

    from backfill_assets.core.operations import Json
    from backfill_assets.flights.models.features import Row
    from backfill_assets.flights.models.scores import DelayModels

SERVICE = "models"
MAX_ROWS = 10_000


def make_app(replies: StoredReplies, folder: ModelFolder) -> Starlette:
    """Return the server as an ASGI application; models are read at the first request for them."""
    load = cached_loader(folder)

    def endpoint(scores: Callable[[DelayModels, list[Row]], list[float]]) -> Any:
        def act(_connection: psycopg.Connection, body: Json) -> Reply:
            return _scored(load, scores, body)

        return idempotent(replies, act)

    return Starlette(
        routes=[
            Route("/v1/risk", endpoint(lambda m, rows: m.risks(rows)), methods=["POST"]),
            Route("/v1/anomaly", endpoint(lambda m, rows: m.anomalies(rows)), methods=["POST"]),
            Route("/health", _health),
        ]
    )


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _scored(
    load: Callable[[str], DelayModels],
    scores: Callable[[DelayModels, list[Row]], list[float]],
    body: Json,
) -> Reply:
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return problem(400, "Malformed request", 'expected {"model": VERSION, "rows": [[…], …]}')
    rows: Any = body.get("rows")
    if not _are_rows(rows):
        detail = f"rows: expected up to {MAX_ROWS} lists of numbers and nulls"
        return problem(400, "Malformed request", detail)
    try:
        models = load(str(body["model"]))
    except ModelError as error:
        return problem(404, "No such model", str(error))
    try:
        return Reply(200, {"model": models.card.version, "scores": list(scores(models, rows))})
    except ModelError as error:
        return problem(400, "Malformed request", str(error))


def _are_rows(rows: Any) -> bool:
    if not isinstance(rows, list) or len(rows) > MAX_ROWS:
        return False
    if not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        return False
    return all(x is None or type(x) in {int, float} for row in rows for x in row)
