"""Calls to a server that does each request once: what a failure says about what happened there.

A refusal is definite, and so is a connection that never came about. After a timeout, a lost
connection or an error inside the server the request may have been done, or may still be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import httpx

from backfill_assets.core.errors import NotAppliedError, RemoteError, RemoteUnreachableError
from backfill_assets.stores.idempotent_http import HEADER, quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from backfill_assets.core.operations import Json

CONNECT_SECONDS = 3.0  # on this machine it takes milliseconds
IN_PROGRESS = 409  # the first request is at work: nothing is refused


def is_answering(url: str) -> bool:
    """Return whether a GET of ``url`` succeeds, within a moment."""
    try:
        return httpx.get(url, timeout=CONNECT_SECONDS, trust_env=False).is_success
    except httpx.HTTPError:
        return False


class Caller:
    """Posts requests, each under its key.

    Args:
        name: What messages call the server.
        url: Gives its address; asked when the first call is made, and after a lost connection.
        answer_seconds: How long an answer may take.
    """

    def __init__(self, name: str, url: Callable[[], str], *, answer_seconds: float) -> None:
        self._name = name
        self._url = url
        self._timeout = httpx.Timeout(answer_seconds, connect=CONNECT_SECONDS)
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def post(self, path: str, key: str, body: Json) -> Json:
        """Send a request under its key, and return the answer's body.

        Raises:
            RemoteUnreachableError: nothing listens there; nothing was sent.
            NotAppliedError: it was refused; nothing was done.
            RemoteError: nobody can tell whether it was done; the same key may be sent again.
        """
        try:
            answer = self._opened().post(path, json=body, headers={HEADER: quoted(key)})
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self.close()
            message = f"{self._name} does not answer ({error}); start it"
            raise RemoteUnreachableError(message) from error
        except httpx.HTTPError as error:
            self.close()
            said = str(error) or type(error).__name__
            message = f"{self._name}, {path}: no answer came ({said}); it may have been done"
            raise RemoteError(message) from error
        return self._read(path, answer)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> httpx.Client:
        if self._client is None:
            # Not through a proxy that the environment names: the server is on this machine.
            self._client = httpx.Client(
                base_url=self._url(), timeout=self._timeout, trust_env=False
            )
        return self._client

    def _read(self, path: str, answer: httpx.Response) -> Json:
        if answer.is_success:
            try:
                body: Json = answer.json()
            except ValueError as error:
                message = f"{self._name}, {path}: the answer is no JSON ({error}); it was done"
                raise RemoteError(message) from error
            return body
        message = f"{self._name}, {path}: {answer.status_code} {answer.text[:500]}"
        if answer.is_client_error and answer.status_code != IN_PROGRESS:
            raise NotAppliedError(message)
        raise RemoteError(message)
