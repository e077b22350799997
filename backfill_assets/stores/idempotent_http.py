"""An HTTP endpoint that does each request once, however often it comes.

Source: the draft "The Idempotency-Key HTTP Header Field" of the IETF's httpapi group: 400 without
a key, 422 where the key came with another request, 409 while the first one is at work, and else
what was answered then. Problems are told as RFC 9457 has it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from backfill_assets.stores.http_replies import InProgress, KeyReused, Replayed, Reply
from backfill_assets.stores.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from backfill_assets.core.operations import Json
    from backfill_assets.stores.http_replies import Answer, StoredReplies

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"  # "true" where the answer is a stored one
MAX_BODY_BYTES = 8_000_000
MAX_KEY_CHARACTERS = 200
# A structured field's string: printable ASCII in quotes; quotes and backslashes no key needs.
_KEY = re.compile(rf'"([ !#-\[\]-~]{{1,{MAX_KEY_CHARACTERS}}})"')


def quoted(key: str) -> str:
    """Return a key as the header carries it.

    Raises:
        ValueError: it is empty or too long, or has characters that the header cannot carry.
    """
    text = f'"{key}"'
    if not _KEY.fullmatch(text):
        message = f"idempotency key {key!r}: use 1 to {MAX_KEY_CHARACTERS} plain characters"
        raise ValueError(message)
    return text


def problem(status: int, title: str, detail: str) -> Reply:
    """Return a refusal that says what is wrong."""
    return Reply(status, {"type": "about:blank", "title": title, "detail": detail})


def idempotent(
    replies: StoredReplies, act: Callable[[psycopg.Connection, Json], Reply]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that does ``act`` once for each key.

    Args:
        act: Gets the connection of the transaction in which the reply is kept, and the body. It
            is called in a thread.
    """

    async def endpoint(request: Request) -> Response:
        content = await _body(request)
        if content is None:
            return _response(
                problem(413, "The body is too large", f"{MAX_BODY_BYTES} bytes are the most")
            )
        return await run_in_threadpool(_answer, replies, act, request, content)

    return endpoint


def _answer(
    replies: StoredReplies,
    act: Callable[[psycopg.Connection, Json], Reply],
    request: Request,
    content: bytes,
) -> Response:
    key = _KEY.fullmatch(request.headers.get(HEADER, ""))
    if key is None:
        detail = f'send {HEADER}: "…", a string in quotes, the same one for the same request'
        return _response(problem(400, f"{HEADER} is missing", detail))
    try:
        body: Json = json.loads(content)
    except ValueError as error:
        return _response(problem(400, "The body is no JSON", str(error)))
    route = f"{request.method} {request.url.path}\n".encode()
    fingerprint = hashlib.sha256(route + content).hexdigest()
    try:
        found = replies.answer(key[1], fingerprint, lambda connection: act(connection, body))
    except (PostgresError, psycopg.Error) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        return _response(problem(503, "The replies cannot be kept", f"{said}; send it again"))
    return _told(found)


def _told(found: Answer) -> Response:
    if isinstance(found, Replayed):
        return _response(found.reply, {REPLAYED_HEADER: "true"})
    if isinstance(found, InProgress):
        detail = "the first request with this key is at work; send it again in a moment"
        reply = problem(409, "A request is outstanding for this Idempotency-Key", detail)
        return _response(reply, {"Retry-After": "1"})
    if isinstance(found, KeyReused):
        detail = "this key came with another request before; give every request a key of its own"
        return _response(problem(422, "Idempotency-Key is already used", detail))
    return _response(found)


def _response(reply: Reply, headers: dict[str, str] | None = None) -> Response:
    kind = "application/json" if reply.is_kept else "application/problem+json"
    return JSONResponse(reply.body, reply.status, headers, media_type=kind)


async def _body(request: Request) -> bytes | None:
    """Return the body, or None where it is too large; no more than that is held in memory."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)
