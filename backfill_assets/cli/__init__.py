"""``backfill-assets …``: what a terminal can ask and do; a module for each kind of command."""

from backfill_assets.cli.commands import main

__all__ = ["main"]
