"""The code location: everything that Dagster sees."""

from backfill_assets.defs.bindings import ITINERARIES, project
from backfill_assets.defs.itinerary import itinerary_definitions
from backfill_assets.defs.location import build_definitions

defs = build_definitions(project(), [itinerary_definitions(project(), ITINERARIES)])
