"""What `up` prints where its output is no terminal: each catalogue's news, once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import make_plan
from backfill_assets.resources.progress_view import ProgressView
from backfill_assets_tests.resources.small_project import NOW, SHOPS, a_catalogue

if TYPE_CHECKING:
    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.plan import Plan


def looked_at(catalogue: Catalogue, present: PartitionSet) -> Plan:
    none = PartitionSet.empty(catalogue)
    return make_plan(catalogue, present=present, held=none, in_flight=none, now=NOW)


def complete(one: Plan) -> Plan:
    return looked_at(one.catalogue, one.expected)


def test_a_pipe_gets_a_line_of_each_catalogue_and_no_line_twice() -> None:
    first = looked_at(SHOPS, PartitionSet.empty(SHOPS))
    other_catalogue = a_catalogue(name="stalls")
    second = looked_at(other_catalogue, PartitionSet.empty(other_catalogue))
    printed = io.StringIO()
    view = ProgressView(Console(file=printed))

    for plans in ([first, second], [complete(first), second], [complete(first), complete(second)]):
        view.show(plans)
        view.show(plans)

    lines = [line.split("  ")[0] for line in printed.getvalue().splitlines()]
    all_of = len(first.expected)
    assert lines == [
        f"shops: 0 of {all_of}",
        f"stalls: 0 of {all_of}",
        f"shops: {all_of} of {all_of}",
        f"stalls: {all_of} of {all_of}",
    ]
