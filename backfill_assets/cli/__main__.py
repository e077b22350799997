"""``python -m backfill_assets.cli``: as ``backfill-assets``, in an environment without scripts."""

from backfill_assets.cli.commands import main

main()
