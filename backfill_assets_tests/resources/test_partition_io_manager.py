"""What assets return is committed as files: whole, all of it, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
import pandas as pd
import pytest

from backfill_assets.core.errors import MissingPartitionError
from backfill_assets.defs.partitions import partitions_definition
from backfill_assets.resources.partition_io_manager import partition_io_manager
from backfill_assets.resources.run_requests import ON_COMMITTED_TAG, asset_key
from backfill_assets_tests.resources.dagster_of_tests import a_key, a_range, failures
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_2,
    DAY_4,
    DAY_5,
    SHOPS,
    SOLD,
    a_project,
    committed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from backfill_assets.core.partitions import Partition
    from backfill_assets.resources.project import Project

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

TWO_DAYS = a_range("2024-03-01|Paris", "2024-03-02|Lyon")
KEYS = ["2024-03-02|Paris", "2024-03-02|Lyon", "2024-03-01|Paris", "2024-03-01|Lyon"]
REPLACE = {ON_COMMITTED_TAG: "replace"}


@pytest.fixture
def project(root: Path) -> Project:
    return a_project(root)


def rows(first: int) -> pd.DataFrame:
    return pd.DataFrame({"article": ["A0", "A1"], "value": [first, first + 1]})


def materialize(
    project: Project, value: Callable[[], object], tags: dict[str, str]
) -> dg.ExecuteInProcessResult:
    """Run an asset of one's own that returns ``value``."""

    @dg.asset(
        key=asset_key(SOLD),
        partitions_def=partitions_definition(SHOPS, SHOPS.grids[0]),
        io_manager_key="partitions",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def sold() -> dg.Output[Any]:
        return dg.Output(value())

    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize(
            [sold],
            resources={"partitions": partition_io_manager(project)},
            instance=instance,
            tags=tags,
            raise_on_error=False,
        )


def values(project: Project) -> dict[str, list[int]]:
    """Return what is committed: the values by key, newest day first."""
    return {p.key: project.store.read(p).column("value").to_pylist() for p in committed(project)}


def paris(day: Any) -> Partition:
    return SHOPS.partition("article/sold", day, "Paris")


def test_a_frame_is_the_one_partition_that_was_asked_for(project: Project) -> None:
    assert materialize(project, lambda: rows(7), a_key("2024-03-05|Paris")).success
    assert values(project) == {"2024-03-05|Paris": [7, 8]}


def test_a_mapping_is_a_frame_for_each_partition(project: Project) -> None:
    given = {key: rows(10 * number) for number, key in enumerate(KEYS)}
    assert materialize(project, lambda: given, TWO_DAYS).success
    assert values(project) == dict(zip(KEYS, [[0, 1], [10, 11], [20, 21], [30, 31]], strict=True))


def test_an_iterator_of_pairs_is_consumed_lazily(project: Project) -> None:
    met: list[str] = []

    def pairs() -> Iterator[tuple[str, pd.DataFrame]]:
        for key in KEYS:
            met.append(key)
            yield key, rows(1)

    assert materialize(project, pairs, TWO_DAYS).success
    assert met == KEYS
    assert list(values(project)) == KEYS


def test_an_empty_frame_is_committed_and_is_not_absent(project: Project) -> None:
    assert materialize(project, lambda: rows(1).head(0), a_key("2024-03-05|Paris")).success
    assert values(project) == {"2024-03-05|Paris": []}
    assert project.store.read(paris(DAY_5)).num_rows == 0
    with pytest.raises(MissingPartitionError):
        project.store.read(paris(DAY_4))


def test_one_frame_for_many_partitions_is_refused(project: Project) -> None:
    (message,) = failures(materialize(project, lambda: rows(1), TWO_DAYS))
    assert (
        "asset shops/article/sold returned one frame for 4 partitions; return a mapping of "
        "partition keys to frames, or yield such pairs" in message
    )
    assert not committed(project)


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (3, "int")])
def test_a_value_that_is_no_frames_is_refused(project: Project, value: Any, kind: str) -> None:
    (message,) = failures(materialize(project, lambda: value, TWO_DAYS))
    assert f"asset shops/article/sold returned a {kind}; return a frame" in message


def test_an_incomplete_answer_fails_and_what_it_gave_is_committed(project: Project) -> None:
    (message,) = failures(materialize(project, lambda: {KEYS[0]: rows(1)}, TWO_DAYS))
    assert "3 partitions were asked for and not given: 2024-03-02|Lyon, 2024-03-01|" in message
    assert list(values(project)) == [KEYS[0]]


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("2024-03-03|Paris", "gave 2024-03-03|Paris, which was not asked for"),
        ("2024-03-02|Nice", "gave 2024-03-02|Nice, which was not asked for"),
        ("2024-03-02|Lille", "unit 'Lille': shops has 'Paris', 'Lyon', 'Nice'"),
        ("yesterday", "partition key 'yesterday': expected the form"),
    ],
)
def test_a_key_that_was_not_asked_for_is_refused(
    project: Project, key: str, complaint: str
) -> None:
    (message,) = failures(materialize(project, lambda: {key: rows(1)}, TWO_DAYS))
    assert complaint in message
    assert not committed(project)


def test_an_asset_of_no_catalogue_is_refused(project: Project) -> None:
    @dg.asset(io_manager_key="partitions")
    def stranger() -> pd.DataFrame:
        return rows(1)

    result = dg.materialize(
        [stranger],
        resources={"partitions": partition_io_manager(project)},
        raise_on_error=False,
    )
    assert "asset stranger is no query of shops" in failures(result)[0]


def test_what_came_before_a_failure_is_committed(project: Project) -> None:
    def pairs() -> Iterator[tuple[str, pd.DataFrame]]:
        yield from ((key, rows(1)) for key in KEYS[:2])
        message = "the third one cannot be had"
        raise LookupError(message)

    assert not materialize(project, pairs, TWO_DAYS).success
    assert list(values(project)) == KEYS[:2]


def test_rows_that_do_not_fit_fail_the_run_and_commit_nothing_of_their_partition(
    project: Project,
) -> None:
    given = dict.fromkeys(KEYS, rows(1)) | {KEYS[2]: rows(1).assign(value=["many", "few"])}
    (message,) = failures(materialize(project, lambda: given, TWO_DAYS))
    assert "shops/article/sold/2024-03-01/Paris: column 'value' is declared int64" in message
    assert list(values(project)) == KEYS[:2]


def test_a_rerun_leaves_what_is_committed_and_computes_what_is_missing(project: Project) -> None:
    materialize(project, lambda: rows(1), a_key(KEYS[0]))
    assert materialize(project, lambda: dict.fromkeys(KEYS, rows(5)), TWO_DAYS).success
    assert [value[0] for value in values(project).values()] == [1, 5, 5, 5]


def test_a_rerun_that_asks_for_it_replaces_what_is_committed(project: Project) -> None:
    materialize(project, lambda: rows(1), a_key(KEYS[0]))
    assert materialize(project, lambda: rows(5), a_key(KEYS[0]) | REPLACE).success
    assert values(project) == {KEYS[0]: [5, 6]}


def test_a_rerun_that_fails_leaves_the_old_data_and_the_partition_committed(
    project: Project,
) -> None:
    materialize(project, lambda: rows(1), a_key(KEYS[0]))
    place = project.store.location(paris(DAY_2))
    before = project.store.verify(paris(DAY_2))

    bad = rows(1).assign(value=[1.0, float("inf")])
    assert not materialize(project, lambda: bad, a_key(KEYS[0]) | REPLACE).success
    assert not materialize(project, object, a_key(KEYS[0]) | REPLACE).success
    assert values(project) == {KEYS[0]: [1, 2]}
    assert project.store.verify(paris(DAY_2)) == before
    assert place.endswith("/shops/article/sold/v1/2024-03-02/Paris.parquet")


def test_a_tag_that_is_neither_skip_nor_replace_is_refused(project: Project) -> None:
    tags = a_key(KEYS[0]) | {ON_COMMITTED_TAG: "overwrite"}
    (message,) = failures(materialize(project, lambda: rows(1), tags))
    assert "tag backfill_assets/on_committed is 'overwrite'; give 'skip' or 'replace'" in message
    assert not committed(project)


def test_an_open_partition_is_refused_with_its_closing_instant(project: Project) -> None:
    given = {"2024-03-05|Paris": rows(1), "2024-03-06|Paris": rows(1)}
    tags = a_range("2024-03-05|Paris", "2024-03-06|Paris")
    (message,) = failures(materialize(project, lambda: given, tags))
    assert (
        "1 partitions were refused, and the others are committed: shops/article/sold/2024-03-06/"
        "Paris is open: its day closes at 2024-03-07T01:00:00+01:00" in message
    )
    assert list(values(project)) == ["2024-03-05|Paris"]


def test_a_held_partition_is_refused_also_when_it_shall_be_replaced(project: Project) -> None:
    materialize(project, lambda: rows(1), a_key("2024-03-01|Paris"))
    project.store.hold([paris(DAY_1)], "counted twice")
    tags = a_key("2024-03-01|Paris") | REPLACE
    (message,) = failures(materialize(project, lambda: rows(1), tags))
    assert "shops/article/sold/2024-03-01/Paris is held: a hold stands for it" in message
    assert not committed(project)


def test_a_finished_run_leaves_no_attempt_behind(project: Project) -> None:
    materialize(project, lambda: rows(1), a_key(KEYS[0]))
    materialize(project, object, a_key(KEYS[1]))
    attempts = [path for path in (project.store.root / ".attempts").iterdir() if path.is_dir()]
    assert attempts == []
