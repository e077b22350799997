"""Existing files are taken in after each was checked; what is refused is named, the rest stands."""

from __future__ import annotations

import json
import math
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.core.catalogue import Category, Unit, ValueType
from backfill_assets.core.errors import SettingsError, StoreUnreadableError
from backfill_assets.core.partitions import ColumnType
from backfill_assets.resources import adoption
from backfill_assets.resources import tick as tick_module
from backfill_assets.resources.adoption import adopt
from backfill_assets.resources.clock import FixedClock
from backfill_assets.resources.project import DataSet, Project
from backfill_assets.stores.files.local import LocalPartitionStore
from backfill_assets_tests.resources.dagster_of_tests import Dagster
from backfill_assets_tests.resources.small_project import (
    DAY_1,
    DAY_4,
    DAY_5,
    EXPECTED,
    NOW,
    SHOPS,
    Shops,
    a_catalogue,
    a_project,
    committed,
    fill,
)
from backfill_assets_tests.stores.children import as_nobody
from backfill_assets_tests.stores.crash_points import killed_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backfill_assets.core.partitions import Partition
    from backfill_assets.resources.adoption import Adoption

PARIS = SHOPS.partition("article/sold", DAY_5, "Paris")
PLACE = "article/sold/2024-03-05/Paris"


@pytest.fixture
def project(root: Path) -> Project:
    """A project whose store is empty."""
    return a_project(root)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """The tree of a catalogue, as another store of the same business holds it."""
    other = a_project(tmp_path / "history")
    fill(other)
    return tmp_path / "history"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty folder for files to take in."""
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def rows(**columns: Any) -> pa.Table:
    """Return two groups of one partition, with some columns changed, added or left out."""
    parts = {"article": ["A0", "A1"], "value": [1, 2]} | columns
    return pa.table({name: values for name, values in parts.items() if values is not None})


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def write_json(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and time of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def contents(project: Project) -> dict[Partition, bytes]:
    return {p: Path(project.store.location(p)).read_bytes() for p in committed(project)}


def values(project: Project, partition: Partition = PARIS) -> list[Any]:
    found: list[Any] = project.store.read(partition).column("value").to_pylist()
    return found


def reasons(outcome: Adoption, folder: Path) -> dict[str, str]:
    """Return why each path below a folder was refused."""
    return {str(Path(r.path).relative_to(folder)): r.reason for r in outcome.refused}


class TestTrees:
    def test_a_whole_history_is_taken_in_byte_by_byte_and_the_tree_is_left_as_it_was(
        self, project: Project, history: Path
    ) -> None:
        before = snapshot(history)
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already, outcome.refused) == (EXPECTED, 0, [])
        assert snapshot(history) == before
        copied = {path: content for path, (content, _) in snapshot(project.store.root).items()}  # type: ignore[attr-defined]
        assert copied.keys() - {".attempts/.births.lock", ".attempts/.proof.lock"} == {
            path for path in before if not path.startswith(".attempts/")
        }
        for path, (content, _) in before.items():
            if path.endswith(".parquet"):
                assert copied[path] == content
        assert not project.plan(SHOPS).missing
        for partition in committed(project):
            project.store.verify(partition)

    def test_the_copies_share_nothing_with_the_tree(self, project: Project, history: Path) -> None:
        adopt(project, history)
        before = contents(project)
        for path in history.rglob("*.parquet"):
            path.write_bytes(b"changed in place")
        assert contents(project) == before

    @pytest.mark.parametrize(
        "folders",
        ["shops/article/sold/v1", "shops/article/sold", "article/sold/v1", "article/sold"],
    )
    def test_the_folders_of_catalogue_and_version_may_be_left_out(
        self, project: Project, tree: Path, folders: str
    ) -> None:
        write(tree / folders / "2024-03-05/Paris.parquet", rows())
        assert adopt(project, tree).adopted == 1
        assert values(project) == [1, 2]

    def test_a_path_that_can_be_of_two_catalogues_is_refused_and_one_that_names_its_own_is_not(
        self, root: Path, tree: Path
    ) -> None:
        catalogues = [a_catalogue(name="shops"), a_catalogue(name="stalls")]
        store = LocalPartitionStore(root, catalogues)
        store.prepare()
        project = Project(
            data_sets=[DataSet(catalogue, Shops()) for catalogue in catalogues],
            store=store,
            clock=FixedClock(NOW),
        )
        doubtful = write(tree / f"{PLACE}.parquet", rows())
        write(tree / "stalls/article/sold/2024-03-05/Paris.parquet", rows())
        outcome = adopt(project, tree)
        assert [(r.path, r.reason) for r in outcome.refused] == [
            (
                str(doubtful),
                "could be of shops/article/sold or stalls/article/sold; put it below "
                "catalogue/category/value_type/v1",
            )
        ]
        committed_of = {c.name: {str(p) for p in store.scan(c).committed} for c in catalogues}
        assert committed_of == {"shops": set(), "stalls": {f"stalls/{PLACE}"}}

    def test_a_value_type_may_be_called_like_the_folder_of_a_version(
        self, root: Path, tree: Path
    ) -> None:
        catalogue = a_catalogue(
            name="same",
            categories=[Category("same"), Category("other")],
            value_types=[ValueType("v2"), ValueType("v1")],
        )
        project = a_project(root, catalogue=catalogue)
        table = rows(same=["a", "b"], article=None, value=[1.0, 2.0])
        for place in (
            "same/v1/2024-03-05/Paris",
            "same/same/v2/v1/2024-03-05/Lyon",
            "same/v1/v1/2024-03-04/Paris",
        ):
            write(tree / f"{place}.parquet", table)
        assert adopt(project, tree).refused == []
        assert {str(p) for p in committed(project)} == {
            "same/same/v1/2024-03-05/Paris",
            "same/same/v2/2024-03-05/Lyon",
            "same/same/v1/2024-03-04/Paris",
        }

    def test_units_are_found_by_the_names_of_their_files(self, root: Path, tree: Path) -> None:
        catalogue = a_catalogue(units=[Unit("Zürich"), Unit("a.b"), Unit("Paris")])
        project = a_project(root, catalogue=catalogue)
        day = tree / "article/sold/2024-03-05"
        for name in ("Z%C3%BCrich", "a%2Eb", "a.b", "Zürich", "paris"):
            write(day / f"{name}.parquet", rows())
        outcome = adopt(project, tree)
        assert sorted(p.unit for p in committed(project)) == ["Zürich", "a.b"]
        assert reasons(outcome, day) == {
            "Zürich.parquet": ("the file of unit 'Zürich' is called 'Z%C3%BCrich'; rename it"),
            "a.b.parquet": f"is no file of a unit; expected {adoption_form()}",
            "paris.parquet": "shops has no unit whose file is called 'paris'",
        }

    def test_an_empty_tree_and_an_empty_day_are_no_error(
        self, project: Project, tree: Path
    ) -> None:
        assert adopt(project, tree).facts() == {"adopted": 0, "stood_already": 0, "refused": []}
        write(tree / f"{PLACE}.parquet", rows().slice(0, 0))
        assert adopt(project, tree).adopted == 1
        assert values(project) == []

    def test_what_is_no_folder_is_refused_in_a_sentence(
        self, project: Project, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        for name in ("nowhere", "file"):
            with pytest.raises(SettingsError, match=f"{name} is no folder; give the one"):
                adopt(project, tmp_path / name)

    def test_a_store_that_was_never_begun_takes_nothing_in_and_can_be_tried_dry(
        self, tmp_path: Path, history: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        project = a_project(tmp_path / "empty")
        with pytest.raises(StoreUnreadableError, match="is not a store"):
            adopt(project, history)
        assert adopt(project, history, dry_run=True).adopted == EXPECTED
        assert os.listdir(tmp_path / "empty") == []  # noqa: PTH208 - names only

    def test_a_dry_run_says_the_same_and_changes_nothing(
        self, project: Project, history: Path
    ) -> None:
        shutil.copytree(history / "shops/article", history / "shops/gone")
        before = snapshot(project.store.root)  # type: ignore[attr-defined]
        dry = adopt(project, history, dry_run=True)
        assert snapshot(project.store.root) == before  # type: ignore[attr-defined]
        assert dry.facts() == adopt(project, history).facts()
        assert (dry.adopted, len(dry.refused)) == (EXPECTED, 28)

    def test_the_store_itself_as_a_tree_is_all_there_already(
        self, project: Project, root: Path
    ) -> None:
        fill(project)
        before = snapshot(root / "shops")
        outcome = adopt(project, root)
        assert (outcome.adopted, outcome.stood_already, outcome.refused) == (0, EXPECTED, [])
        assert snapshot(root / "shops") == before


def adoption_form() -> str:
    return "[catalogue/]category/value_type/[v1/]YYYY-MM-DD/unit.parquet or .json"


class TestFormats:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"compression": "zstd"},
            {"use_dictionary": ["article"], "row_group_size": 1},
            {"version": "1.0", "data_page_version": "2.0"},
        ],
    )
    def test_parquet_of_any_program_is_taken_in_and_written_as_ours(
        self, project: Project, tree: Path, options: dict[str, Any]
    ) -> None:
        write(tree / f"{PLACE}.parquet", rows(), **options)
        assert adopt(project, tree).adopted == 1
        project.store.verify(PARIS)
        with project.store.attempt("computing") as attempt:
            attempt.stage(PARIS, rows())
            assert [one.adopted for one in attempt.publish()] == [True]

    def test_a_frame_of_pandas_is_taken_in_and_its_columns_are_cast_as_a_sources_are(
        self, project: Project, tree: Path
    ) -> None:
        import pandas as pd

        frame = pd.DataFrame(
            {
                "value": [1.0, float("nan")],
                "article": pd.Categorical(["A0", "A1"]),
                "unit": ["Paris", "Paris"],
                "date": pd.to_datetime(["2024-03-05", "2024-03-05"]),
            }
        )
        (tree / PLACE).parent.mkdir(parents=True)
        frame.to_parquet(tree / f"{PLACE}.parquet", index=False)
        assert adopt(project, tree).refused == []
        assert project.store.read(PARIS).to_pylist() == [
            {"date": DAY_5, "unit": "Paris", "article": "A0", "value": 1},
            {"date": DAY_5, "unit": "Paris", "article": "A1", "value": None},
        ]

    @pytest.mark.parametrize(
        "document",
        [
            [{"article": "A0", "value": 1}, {"value": None, "article": "A1"}],
            {"rows": [{"article": "A0", "value": 1.0}, {"article": "A1", "value": None}]},
            [
                {"date": "2024-03-05", "unit": "Paris", "article": "A0", "value": 1},
                {"date": "2024-03-05", "unit": "Paris", "article": "A1", "value": None},
            ],
        ],
    )
    def test_json_is_a_list_of_rows_or_an_object_around_it(
        self, project: Project, tree: Path, document: object
    ) -> None:
        write_json(tree / f"{PLACE}.json", document)
        assert adopt(project, tree).refused == []
        assert values(project) == [1, None]

    def test_a_tree_of_another_format_is_taken_in_with_the_same_digests(
        self, tmp_path: Path, history: Path
    ) -> None:
        as_json = json_project(tmp_path / "json")
        assert adopt(as_json, history).adopted == EXPECTED
        again = a_project(tmp_path / "again")
        assert adopt(again, tmp_path / "json").adopted == EXPECTED
        for partition in committed(again):
            name = Path(again.store.location(partition)).relative_to(tmp_path / "again")
            content = Path(again.store.location(partition)).read_bytes()
            assert content == (history / name).read_bytes()

    def test_a_tree_with_markers_is_taken_in_and_so_is_any_tree_into_a_store_with_markers(
        self, tmp_path: Path, history: Path
    ) -> None:
        marked = project_like(tmp_path / "marked", commit_protocol="marker")
        adopt(marked, history)
        with marked.store.attempt("restating") as attempt:
            attempt.stage(PARIS, rows())
            attempt.publish(replace=True)
        marked.store.hold([SHOPS.partition("article/sold", DAY_5, "Lyon")], "wrong")
        identity = tmp_path / "marked/.backfill-store.json"
        shutil.copy(identity, identity.with_name(".backfill-store.2.json"))
        stray = "Nice.7.0123456789abcdef0123456789abcdef.parquet"
        write(tmp_path / "marked/shops/article/sold/v1/2024-03-05" / stray, rows())
        again = a_project(tmp_path / "again")
        outcome = adopt(again, tmp_path / "marked")
        assert outcome.adopted == EXPECTED - 1
        assert [Path(refusal.path).name for refusal in outcome.refused] == ["Lyon.hold"]
        assert values(again) == [1, 2]
        assert adopt(marked, history).stood_already == EXPECTED - 2

    @pytest.mark.parametrize("file_format", ["parquet", "json"])
    def test_what_the_source_said_when_a_file_was_made_is_taken_in_with_it(
        self, tmp_path: Path, history: Path, file_format: str
    ) -> None:
        made = a_project(history)
        with made.store.attempt("restating") as attempt:
            attempt.stage(PARIS, rows(), source="as of noon")
            attempt.publish(replace=True)
        project = project_like(tmp_path / "store", file_format=file_format)
        adopt(project, history)
        assert project.store.records([PARIS])[PARIS].source == "as of noon"

    @pytest.mark.parametrize("commit_protocol", ["link", "marker"])
    def test_a_file_of_ours_is_copied_as_it_is_and_any_other_is_written_anew(
        self, tmp_path: Path, history: Path, commit_protocol: str
    ) -> None:
        project = project_like(tmp_path / "store", commit_protocol=commit_protocol)
        day = history / "shops/article/sold/v1/2024-03-05"
        ours = (day / "Paris.parquet").read_bytes()
        table = pq.read_table(day / "Lyon.parquet", partitioning=None)
        # Without its commit record it could be anybody's.
        foreign = write(day / "Lyon.parquet", table.replace_schema_metadata(None)).read_bytes()
        assert adopt(project, history).refused == []
        found = contents(project)
        assert found[PARIS] == ours
        assert found[SHOPS.partition("article/sold", DAY_5, "Lyon")] != foreign


def json_project(root: Path) -> Project:
    return project_like(root, file_format="json")


def project_like(root: Path, **choices: str) -> Project:
    """Return a project with a store of other settings."""
    store = LocalPartitionStore(root, [SHOPS], **choices)
    store.prepare()
    like = a_project(root.with_name("like"))
    return Project(data_sets=like.data_sets, store=store, clock=like.clock)


class TestRefusals:
    def test_every_file_that_does_not_fit_is_named_and_the_others_are_taken_in(
        self, project: Project, tree: Path
    ) -> None:
        day = tree / "article/sold/2024-03-05"
        good = write(day / "Lyon.parquet", rows())
        write(tree / f"{PLACE}.parquet", rows(value=["one", "two"]))
        write(tree / "article/sold/2024-03-04/Paris.parquet", rows(date=[DAY_4, DAY_5]))
        write(tree / "article/sold/2024-03-04/Lyon.parquet", rows(unit=["Lyon", "Nice"]))
        write(tree / "article/sold/2024-03-03/Paris.parquet", rows(amount=[1, 2], value=None))
        write(tree / "article/sold/2024-03-03/Lyon.parquet", rows(more=[1, 2]))
        write(tree / "article/revenue/2024-03-03/Lyon.parquet", rows(value=[1.0, math.inf]))
        write(tree / "article/sold/2024-03-03/Nice.parquet", rows(value=[1.5, 2]))
        cut = tree / "article/sold/2024-03-02/Paris.parquet"
        cut.parent.mkdir(parents=True)
        cut.write_bytes(good.read_bytes()[:-9])
        (tree / "article/sold/2024-03-02/Lyon.parquet").touch()
        outcome = adopt(project, tree)
        assert outcome.adopted == 1
        told = reasons(outcome, tree / "article")
        assert {path: reason.split(":")[0] for path, reason in told.items()} == {
            "revenue/2024-03-03/Lyon.parquet": "shops/article/revenue/2024-03-03/Lyon",
            "sold/2024-03-02/Lyon.parquet": "cannot be read as Parquet",
            "sold/2024-03-02/Paris.parquet": "cannot be read as Parquet",
            "sold/2024-03-03/Lyon.parquet": "shops/article/sold/2024-03-03/Lyon",
            "sold/2024-03-03/Nice.parquet": "shops/article/sold/2024-03-03/Nice",
            "sold/2024-03-03/Paris.parquet": "shops/article/sold/2024-03-03/Paris",
            "sold/2024-03-04/Lyon.parquet": "shops/article/sold/2024-03-04/Lyon",
            "sold/2024-03-04/Paris.parquet": "shops/article/sold/2024-03-04/Paris",
            "sold/2024-03-05/Paris.parquet": "shops/article/sold/2024-03-05/Paris",
        }
        assert "a value is infinite or NaN" in told["revenue/2024-03-03/Lyon.parquet"]
        assert "expected date, unit, article, value" in told["sold/2024-03-03/Lyon.parquet"]
        assert "a row has unit 'Nice'" in told["sold/2024-03-04/Lyon.parquet"]
        assert "a row has date datetime.date(2024, 3, 5)" in told["sold/2024-03-04/Paris.parquet"]
        assert "column 'value' is declared int64" in told["sold/2024-03-05/Paris.parquet"]
        assert [r.path for r in outcome.refused] == sorted(r.path for r in outcome.refused)

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            ("[{", "cannot be read as JSON: "),
            ("[" * 100_000, "cannot be read as JSON: "),
            ("7", "expected a list of row objects"),
            ({"commit": 7, "rows": []}, "has no commit record"),
            ({"values": []}, "expected a list of row objects"),
            ([{"article": "A0", "value": 1}, 7], "expected a list of row objects"),
            ([{"article": "A0", "value": 1}, {"article": "A1"}], "row 1 has article; row 0 has"),
            ([{"article": "A0", "value": 1}, {"article": "A1", "value": 1, "x": 1}], "row 1 has"),
            ([{"article": "A0", "value": 1}, {"article": 7, "value": 1}], "of more than one type"),
            ([{"article": "A0", "value": 1.5}], "column 'value' is declared int64"),
            ([{"article": "A0", "value": True}], "came as bool"),
            ([{"article": "A0", "value": [1]}], "is declared int64"),
            ([{"article": "\ud800", "value": 1}], ""),
            ('[{"article": "A0", "value": NaN}]', ""),
            ('[{"article": "A0", "value": 1e999}]', ""),
        ],
    )
    def test_json_that_does_not_fit_says_why(
        self, project: Project, tree: Path, document: object, reason: str
    ) -> None:
        write_json(tree / f"{PLACE}.json", document)
        outcome = adopt(project, tree)
        assert outcome.adopted == 0
        assert reason in outcome.refused[0].reason
        assert outcome.refused[0].reason

    def test_a_file_that_stands_where_it_does_not_belong_is_refused_by_its_record(
        self, project: Project, history: Path
    ) -> None:
        day = history / "shops/article/sold/v1/2024-03-05"
        shutil.copy(day / "Paris.parquet", day / "Lyon.parquet")
        outcome = adopt(project, history)
        assert outcome.adopted == EXPECTED - 1
        assert reasons(outcome, day) == {
            "Lyon.parquet": (
                "its commit record says shops/article/sold/2024-03-05/Paris, version 1, and its "
                "path shops/article/sold/2024-03-05/Lyon, version 1"
            )
        }

    def test_a_file_whose_rows_are_not_those_of_its_record_is_refused(
        self, project: Project, history: Path
    ) -> None:
        path = history / "shops/article/sold/v1/2024-03-05/Paris.parquet"
        metadata = pq.read_metadata(path).metadata
        table = pq.read_table(path, partitioning=None).replace_schema_metadata(metadata)
        write(path, table.slice(1))
        outcome = adopt(project, history)
        assert len(outcome.refused) == 1
        assert outcome.refused[0].path == str(path)
        assert outcome.refused[0].reason.startswith("its commit record says 2 rows with digest ")
        assert ", and it holds 1 with digest " in outcome.refused[0].reason

    def test_another_version_than_the_catalogues_is_refused_by_folder_and_by_record(
        self, root: Path, history: Path
    ) -> None:
        project = a_project(root, catalogue=a_catalogue(versions={"article/sold": 2}))
        day = history / "shops/article/sold/2024-03-04"
        shutil.copytree(history / "shops/article/sold/v1/2024-03-04", day)
        outcome = adopt(project, history)
        assert outcome.adopted == EXPECTED - 14
        told = set(reasons(outcome, history).values())
        assert "is of v1, and the catalogue asks for v2 of article/sold" in told
        assert (
            "its commit record says shops/article/sold/2024-03-04/Paris, version 1, and its path "
            "shops/article/sold/2024-03-04/Paris, version 2"
        ) in told

    def test_open_held_and_never_expected_partitions_are_refused_with_their_state(
        self, project: Project, tree: Path
    ) -> None:
        project.store.hold([PARIS], "counted twice")
        write(tree / f"{PLACE}.parquet", rows())
        write(tree / "article/sold/2024-03-06/Paris.parquet", rows())
        write(tree / "article/sold/2024-03-01/Nice.parquet", rows())
        write(tree / "article/sold/2024-02-29/Paris.parquet", rows())
        write(tree / "article/sold/2024-03-11/Paris.parquet", rows())
        outcome = adopt(project, tree)
        assert outcome.adopted == 0
        assert reasons(outcome, tree / "article/sold") == {
            "2024-02-29/Paris.parquet": (
                "shops/article/sold/2024-02-29/Paris is not expected: "
                "article/sold begins on 2024-03-01"
            ),
            "2024-03-01/Nice.parquet": (
                "shops/article/sold/2024-03-01/Nice is not expected: "
                "unit 'Nice' is not open on 2024-03-01"
            ),
            "2024-03-05/Paris.parquet": (
                "shops/article/sold/2024-03-05/Paris is held: counted twice"
            ),
            "2024-03-06/Paris.parquet": (
                "shops/article/sold/2024-03-06/Paris is open: its day closes at "
                "2024-03-07T01:00:00+01:00"
            ),
            "2024-03-11/Paris.parquet": (
                "shops/article/sold/2024-03-11/Paris is not expected: shops ends on 2024-03-10"
            ),
        }
        assert len(committed(project)) == 0

    def test_what_retention_does_not_keep_is_refused(self, root: Path, history: Path) -> None:
        project = a_project(root, catalogue=a_catalogue(retention_days=2))
        outcome = adopt(project, history)
        assert committed(project).days() == [DAY_5, DAY_4]
        assert all("keeps its newest 2 closed days" in r.reason for r in outcome.refused)

    def test_a_hold_in_the_tree_keeps_its_file_from_being_taken_in(
        self, project: Project, history: Path
    ) -> None:
        held = history / "shops/article/sold/v1/2024-03-05/Paris.hold"
        write_json(held, {"reason": "wrong"})
        outcome = adopt(project, history)
        assert outcome.adopted == EXPECTED - 1
        assert reasons(outcome, held.parent) == {
            "Paris.hold": f"is no file of a unit; expected {adoption_form()}",
            "Paris.parquet": "is held in the tree, by Paris.hold beside it",
        }

    def test_litter_links_and_unknown_places_are_named_and_never_followed(
        self, project: Project, tree: Path, tmp_path: Path
    ) -> None:
        outside = write(tmp_path / "outside/article/sold/2024-03-05/Lyon.parquet", rows())
        good = write(tree / f"{PLACE}.parquet", rows())
        (good.parent / "Lyon.parquet").symlink_to(outside)
        (tree / "hour").symlink_to(tmp_path / "outside")
        (tree / "article/loop").symlink_to(tree)
        os.mkfifo(good.parent / "Nice.parquet")
        write(tree / "trains/article/sold/2024-03-05/Lyon.parquet", rows())
        write(tree / "article/sold/Lyon.parquet", rows())
        write(tree / "article/sold/2024-03-05/deeper/Lyon.parquet", rows())
        write(tree / "article/sold/20240305/Lyon.parquet", rows())
        (tree / "README").touch()
        (good.parent / "Paris.parquet.crc").touch()
        outcome = adopt(project, tree)
        assert outcome.adopted == 1
        link = "is a symlink, or no regular file; give the file itself"
        place = f"is no file of a query on a day; expected {adoption_form()}"
        assert reasons(outcome, tree) == {
            "README": place,
            "article/loop": link,
            "article/sold/2024-03-05/Lyon.parquet": link,
            "article/sold/2024-03-05/Nice.parquet": link,
            "article/sold/2024-03-05/Paris.parquet.crc": (
                f"is no file of a unit; expected {adoption_form()}"
            ),
            "article/sold/2024-03-05/deeper/Lyon.parquet": place,
            "article/sold/20240305/Lyon.parquet": place,
            "article/sold/Lyon.parquet": place,
            "hour": link,
            "trains/article/sold/2024-03-05/Lyon.parquet": place,
        }

    def test_of_two_files_for_one_partition_the_second_is_refused(
        self, project: Project, tree: Path
    ) -> None:
        first = write_json(tree / f"{PLACE}.json", [{"article": "A0", "value": 1}])
        write(tree / f"{PLACE}.parquet", rows())
        write(tree / f"shops/{PLACE}.parquet", rows())
        outcome = adopt(project, tree)
        assert values(project) == [1]
        told = f"is of {PARIS}, and so is {first}; keep one"
        assert [r.reason for r in outcome.refused] == [told, told]

    def test_a_marker_that_cannot_be_read_is_named_and_the_others_are_taken_in(
        self, tmp_path: Path, history: Path
    ) -> None:
        marked = project_like(tmp_path / "marked", commit_protocol="marker")
        adopt(marked, history)
        place = Path(marked.store.location(PARIS)).parent
        place.joinpath("Paris.1.commit").chmod(0)
        folder = tmp_path
        while folder != Path("/tmp"):  # noqa: S108 - up to where everybody may go
            folder.chmod(0o755)
            folder = folder.parent
        again = a_project(tmp_path / "again")

        outcome = as_nobody(lambda: adopt(again, tmp_path / "marked", dry_run=True))

        assert outcome.adopted == EXPECTED - 1
        assert [(r.path, r.reason) for r in outcome.refused] == [
            (str(place / "Paris.1.commit"), "cannot be read: Permission denied")
        ]

    def test_what_cannot_be_read_is_named_and_the_others_are_taken_in(
        self, project: Project, tree: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path
        while folder != Path("/tmp"):  # noqa: S108 - up to where everybody may go
            folder.chmod(0o755)
            folder = folder.parent
        good = write(tree / f"{PLACE}.parquet", rows())
        write(good.with_name("Lyon.parquet"), rows()).chmod(0)
        write(tree / "hour/sold/2024-03-05/Lyon.parquet", rows())
        (tree / "hour").chmod(0)
        outcome = as_nobody(lambda: adopt(project, tree, dry_run=True))
        (tree / "hour").chmod(0o755)
        assert outcome.adopted == 1
        assert reasons(outcome, tree) == {
            "article/sold/2024-03-05/Lyon.parquet": "cannot be read: Permission denied",
            "hour": "cannot be read: Permission denied",
        }


class TestRepeating:
    def test_what_stands_with_the_same_content_is_adopted_silently(
        self, project: Project, history: Path
    ) -> None:
        fill(project, days=[DAY_5])
        before = contents(project)
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - 12, 12)
        assert contents(project).items() >= before.items()
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already, outcome.refused) == (0, EXPECTED, [])

    def test_what_stands_with_other_content_is_refused_and_both_digests_are_named(
        self, project: Project, tree: Path
    ) -> None:
        fill(project)
        before = contents(project)
        write(tree / f"{PLACE}.parquet", rows())
        outcome = adopt(project, tree)
        stands = project.store.verify(PARIS).digest
        assert outcome.facts()["refused"] == [
            {
                "path": str(tree / f"{PLACE}.parquet"),
                "reason": (
                    f"{PARIS} is committed with digest {stands}, and this file has digest "
                    "cc4cc01dda24a27e0026422ab18177b1ed23b29ff39d894fc2220ac7a54cb767; delete "
                    f"{project.store.location(PARIS)} to take this one in"
                ),
            }
        ]
        assert contents(project) == before

    def test_a_damaged_file_that_stands_is_left_for_a_person(
        self, project: Project, tree: Path
    ) -> None:
        place = Path(project.store.location(PARIS))
        place.parent.mkdir(parents=True)
        place.write_bytes(b"damaged")
        write(tree / f"{PLACE}.parquet", rows())
        outcome = adopt(project, tree)
        assert outcome.refused[0].reason.startswith("a damaged file stands there already: ")
        assert place.read_bytes() == b"damaged"

    def test_what_is_committed_while_it_is_adopted_counts_as_it_would_have_before(
        self, project: Project, tree: Path
    ) -> None:
        """Meanwhile a run commits one same, one other, and a folder stands in the way of one."""
        day = tree / "article/sold/2024-03-05"
        for unit in ("Paris", "Lyon", "Nice"):
            write(day / f"{unit}.parquet", rows())
        write(tree / "article/sold/2024-03-04/Nice.parquet", rows())
        lyon, nice = (SHOPS.partition("article/sold", DAY_5, unit) for unit in ("Lyon", "Nice"))
        meanwhile = []

        def on_progress(done: int, _count: int) -> None:
            if done == 0 and not meanwhile:
                meanwhile.append(done)
                with project.store.attempt("run") as attempt:
                    attempt.stage(PARIS, rows())
                    attempt.stage(lyon, rows(value=[3, 4]))
                    attempt.publish()
                Path(project.store.location(nice)).mkdir()

        outcome = adopt(project, tree, on_progress=on_progress)
        assert (outcome.adopted, outcome.stood_already) == (1, 1)
        told = reasons(outcome, day)
        assert "is committed with digest" in told["Lyon.parquet"]
        assert "is not ours to touch" in told["Nice.parquet"]
        assert values(project, lyon) == [3, 4]

    @pytest.mark.parametrize("is_damaged", [False, True])
    def test_what_stood_when_it_was_planned_and_is_gone_when_it_is_looked_at_is_taken_in(
        self, project: Project, tree: Path, *, is_damaged: bool
    ) -> None:
        """Or its file in the tree is damaged meanwhile, and is refused."""
        path = write(tree / f"{PLACE}.parquet", rows())
        adopt(project, tree)
        place = Path(project.store.location(PARIS))
        stood = place.read_bytes()
        records = project.store.records

        def gone(partitions: Any) -> Any:
            place.unlink(missing_ok=True)
            if is_damaged:
                path.write_bytes(b"damaged")
            return records(partitions)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(project.store, "records", gone)
            outcome = adopt(project, tree)
        if is_damaged:
            assert (outcome.adopted, len(outcome.refused)) == (0, 1)
            assert not place.exists()
        else:
            assert (outcome.adopted, outcome.refused) == (1, [])
            assert place.read_bytes() == stood

    def test_an_adoption_that_is_broken_off_has_taken_in_the_newest_and_goes_on_when_repeated(
        self, project: Project, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adoption, "GROUP_FILES", 6)
        seen = []

        def break_off(done: int, count: int) -> None:
            seen.append((done, count))
            if done == 18:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            adopt(project, history, on_progress=break_off)
        assert seen == [(0, EXPECTED), (6, EXPECTED), (12, EXPECTED), (18, EXPECTED)]
        newest = list(project.plan(SHOPS).expected)[:18]
        assert list(committed(project)) == newest
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED - 18, 18)
        assert not project.plan(SHOPS).missing

    def test_large_files_are_published_in_smaller_groups_and_counted_alike(
        self, project: Project, history: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adoption, "GROUP_BYTES", 3_000)
        outcome = adopt(project, history)
        assert (outcome.adopted, outcome.stood_already) == (EXPECTED, 0)
        assert not project.plan(SHOPS).missing

    def test_killed_at_any_call_each_partition_is_whole_or_missing_and_repeating_completes_it(
        self, tmp_path: Path
    ) -> None:
        tree = tmp_path / "tree"
        write(tree / f"{PLACE}.parquet", rows())
        write(tree / "article/sold/2024-03-04/Lyon.parquet", rows())
        reached, number = set(), 0
        while True:
            root = tmp_path / f"store-{number}"
            project = a_project(root)
            died_at = killed_at(number, lambda: adopt(project, tree) and None)  # noqa: B023 - at once
            for partition in committed(project):
                project.store.verify(partition)
            outcome = adopt(project, tree)
            assert outcome.adopted + outcome.stood_already == 2
            assert len(committed(project)) == 2
            assert not [p for p in (root / ".attempts").iterdir() if p.is_dir()]
            shutil.rmtree(root)
            if died_at is None:
                break
            reached.add(died_at)
            number += 1
        assert reached >= {"open", "half a write", "link", "mkdir", "_call_syncfs", "flock"}


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
class TestReporting:
    """F18: 300 files present, an empty event log: green without any compute."""

    @pytest.fixture
    def instance(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.ephemeral() as opened:
            yield opened

    def test_three_hundred_adopted_files_turn_green_in_bounded_slices_and_nothing_is_computed(
        self,
        root: Path,
        tmp_path: Path,
        instance: dg.DagsterInstance,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(tick_module, "REPORT_SLICE", 120)
        catalogue = a_catalogue(
            first_day=DAY_5 - timedelta(days=24),
            categories=[Category("article"), Category("hour", ColumnType.INT64)],
            value_types=[ValueType("sold", ColumnType.INT64), ValueType("revenue")],
            units=[Unit("Paris"), Unit("Lyon"), Unit("Nice")],
        )
        fill(a_project(tmp_path / "history", catalogue=catalogue))
        source = Shops()
        dagster = Dagster(a_project(root, catalogue=catalogue, source=source), instance)
        outcome = adopt(dagster.project, tmp_path / "history")
        assert (outcome.adopted, outcome.refused) == (300, [])

        shown = []
        for _ in range(4):
            assert dagster.asks() == []
            shown.append(len(dagster.materialized(*catalogue.queries)))
        assert shown == [120, 240, 300, 300]
        assert source.questions == []
        newest = dagster.events(catalogue.query("article/sold"))
        assert {event.metadata["state"].value for event in newest} == {"found in the store"}
        assert len(newest) == 75

    def test_what_was_not_adopted_is_computed_and_nothing_else(
        self, root: Path, history: Path, instance: dg.DagsterInstance
    ) -> None:
        shutil.rmtree(history / "shops/article/revenue/v1/2024-03-01")
        source = Shops()
        dagster = Dagster(a_project(root, source=source), instance)
        adopt(dagster.project, history)
        dagster.complete()
        assert source.questions == [("article", (DAY_1,))]
        dagster.settled()
        assert len(dagster.materialized(*SHOPS.queries)) == EXPECTED
