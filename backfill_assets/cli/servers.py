"""Commands that run until they are stopped."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from backfill_assets.cli.screen import NO, out
from backfill_assets.defs.bindings import SCORING, project
from backfill_assets.resources.clock import RealClock
from backfill_assets.resources.progress_view import ProgressView
from backfill_assets.resources.settings import log_database_url, partner_database_url, settings

app = typer.Typer()


@app.command()
def up(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where Dagster's pages are, on this machine.")
    ] = 3000,
    *,
    until_complete: Annotated[
        bool, typer.Option("--until-complete", help="Stop when nothing is missing any more.")
    ] = False,
) -> None:
    """Start PostgreSQL and Dagster, and watch history complete itself. Ctrl-C stops everything."""
    # Not at the top: what needs no Dagster database answers two seconds earlier without it.
    from backfill_assets.resources.up import Up  # noqa: PLC0415

    view = ProgressView(out)
    with view:
        is_complete = Up(settings(), project(), view.say).run(
            port, view.show, until_complete=until_complete
        )
    raise typer.Exit(0 if is_complete or not until_complete else NO)


@app.command()
def serve_models() -> None:
    """Answer requests for scores, on this machine. `up` starts this when models are trained."""
    # Not at the top: the other commands answer without a web server.
    from backfill_assets.flights.models.server import SERVICE, make_app  # noqa: PLC0415
    from backfill_assets.stores.http_replies import StoredReplies  # noqa: PLC0415
    from backfill_assets.stores.http_serving import serve  # noqa: PLC0415

    chosen = settings()
    with closing(StoredReplies(log_database_url, SERVICE)) as replies:
        server = make_app(replies, SCORING.folder)
        serve(server, chosen.model_port, chosen.model_server_address)


@app.command()
def serve_hotel_partner() -> None:
    """Answer as the hotel partner of the itineraries, on this machine. `up` starts this."""
    from backfill_assets.flights.itinerary.partner_server import make_app  # noqa: PLC0415 - as above
    from backfill_assets.stores.http_serving import serve  # noqa: PLC0415

    chosen = settings()
    partner = make_app(partner_database_url, RealClock().now)
    serve(partner, chosen.hotel_partner_port, chosen.hotel_partner_address)
