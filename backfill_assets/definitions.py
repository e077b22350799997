"""The code location: everything that Dagster sees."""

from backfill_assets.defs.bindings import project
from backfill_assets.defs.location import build_definitions

defs = build_definitions(project())
