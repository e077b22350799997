"""Every process resolves the same settings, or stops and names the variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backfill_assets.core.cycles import Bounds
from backfill_assets.core.errors import SettingsError
from backfill_assets.resources.settings import PROJECT, Settings

if TYPE_CHECKING:
    from pathlib import Path

NO_FILE = {"BACKFILL_ENV_FILE": ""}
SECRET_URL = "postgresql://dagster:hunter2@db.example:5432/flights"  # noqa: S105 - made up


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / "settings.env"


def named(path: Path, **variables: str) -> dict[str, str]:
    """Return an environment that names a file."""
    return {"BACKFILL_ENV_FILE": str(path), **variables}


def test_without_any_variable_everything_has_a_default() -> None:
    found = Settings.load(NO_FILE)
    assert found.store_root == PROJECT / ".backfill" / "store"
    assert found.dagster_home == PROJECT / ".backfill" / "dagster"
    assert found.database_url is None
    assert (found.clock, found.file_format) == ("real", "parquet")
    assert (found.runs_in_flight, found.tick_seconds) == (4, 4)
    assert found.bounds == Bounds(
        max_days=183, max_partitions=10_000, max_query_seconds=600, max_files=20_000
    )


def test_the_environment_is_read() -> None:
    found = Settings.load({**NO_FILE, "BACKFILL_MAX_DAYS": "7", "BACKFILL_FILE_FORMAT": "json"})
    assert (found.max_days, found.file_format) == (7, "json")


def test_the_env_file_is_read_as_if_it_were_the_environment(env_file: Path) -> None:
    env_file.write_text("# mine\nBACKFILL_MAX_FILES=12\nPATH=/nowhere\nBACKFILL_CLOCK=\n")
    found = Settings.load(named(env_file))
    assert found.max_files == 12
    assert found.clock == "real"  # an empty value is none


def test_one_value_in_both_is_no_conflict(env_file: Path) -> None:
    env_file.write_text("BACKFILL_MAX_DAYS=3\n")
    assert Settings.load(named(env_file, BACKFILL_MAX_DAYS="3")).max_days == 3


def test_two_values_in_both_are_refused_by_name_and_not_shown(env_file: Path) -> None:
    env_file.write_text(f"BACKFILL_DATABASE_URL={SECRET_URL}\n")
    with pytest.raises(SettingsError, match="BACKFILL_DATABASE_URL is set to one value") as refusal:
        Settings.load(named(env_file, BACKFILL_DATABASE_URL=SECRET_URL + "_old"))
    assert "hunter2" not in str(refusal.value)


def test_an_env_file_that_is_not_there_is_refused(env_file: Path) -> None:
    with pytest.raises(SettingsError, match=r"BACKFILL_ENV_FILE: there is no file .*settings\.env"):
        Settings.load(named(env_file))


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ('BACKFILL_STORE="/data/a b"  # mine', "/data/a b"),
        ("BACKFILL_STORE='/data/a b'", "/data/a b"),
        ("BACKFILL_STORE=/data/a b  # mine", "/data/a b"),
        ("BACKFILL_STORE=/data/a#b=c", "/data/a#b=c"),
        ("export BACKFILL_STORE = /data", "/data"),
        ("DATA=/data\nBACKFILL_STORE=${DATA}/files", "/data/files"),
        ("BACKFILL_STORE=${NOT_SET_ANYWHERE:-/data}", "/data"),
        ("OTHER=${NOT_SET_ANYWHERE}\nBACKFILL_STORE=/data", "/data"),
        ("\ufeffBACKFILL_STORE=/data\r\n", "/data"),
        ("BACKFILL_STORE=/old\nBACKFILL_STORE=/data", "/data"),
    ],
)
def test_an_env_file_may_be_written_in_all_the_usual_ways(
    env_file: Path, text: str, store: str
) -> None:
    env_file.write_bytes(text.encode())
    assert str(Settings.load(named(env_file)).store_root) == store


@pytest.mark.parametrize(
    "line",
    [
        "BACKFILL_DATABASE_URL='postgresql://dagster:hunter2@db/flights",
        'BACKFILL_DATABASE_URL="postgresql://dagster:hunter2@db/flights" hunter2',
        "BACKFILL_DATABASE_URL: postgresql://dagster:hunter2@db/flights",
        "BACKFILL_DATABASE_URL",
        "export BACKFILL_DATABASE_URL",
        "OTHER='it is not closed: hunter2",
    ],
)
def test_a_line_that_is_no_variable_is_refused_by_number_and_not_shown(
    env_file: Path, line: str
) -> None:
    """Passed over, the address of a database would silently be the embedded one's."""
    env_file.write_text(f"# mine\nBACKFILL_MAX_DAYS=7\n\n{line}\nBACKFILL_MAX_FILES=7\n")
    with pytest.raises(SettingsError, match=r"settings\.env, line 4: expected NAME=v") as refusal:
        Settings.load(named(env_file))
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "line",
    [
        "BACKFILL_STORE=${NOT_SET_ANYWHERE}/files",
        "BACKFILL_STORE='${NOT_SET_ANYWHERE}/files'",  # single quotes protect nothing there
        "BACKFILL_STORE=${NOT_SET_ANYWHERE}/files\nNOT_SET_ANYWHERE=/too/late",
        "BACKFILL_DATABASE_URL=postgresql://me:hunter2${NOT_SET_ANYWHERE}@db/flights",
    ],
)
def test_a_reference_to_nothing_is_refused_and_not_read_as_an_empty_text(
    env_file: Path, line: str
) -> None:
    env_file.write_text(f"BACKFILL_MAX_DAYS=7\n{line}\n")
    wrong = (
        r"settings\.env, line 2: BACKFILL_\w+ refers to \$\{NOT_SET_ANYWHERE\}, which is not set"
    )
    with pytest.raises(SettingsError, match=wrong) as refusal:
        Settings.load(named(env_file))
    assert "hunter2" not in str(refusal.value)


def test_a_name_without_a_value_that_is_not_ours_is_left_to_others(env_file: Path) -> None:
    env_file.write_text("SOMEBODY_ELSES\nBACKFILL_MAX_DAYS=7\n")
    assert Settings.load(named(env_file)).max_days == 7


def test_an_env_file_that_is_not_text_is_refused_by_name(env_file: Path) -> None:
    env_file.write_bytes("BACKFILL_STORE=/data/été\n".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"settings\.env cannot be read: 'utf-8' codec"):
        Settings.load(named(env_file))


def test_an_unknown_variable_is_refused_by_name_and_the_known_ones_are_listed() -> None:
    with pytest.raises(
        SettingsError, match="BACKFILL_STOR is no setting; there are BACKFILL_ALERT_WEBHOOK, "
    ):
        Settings.load({**NO_FILE, "BACKFILL_STOR": "/data"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BACKFILL_MAX_DAYS", "many"),
        ("BACKFILL_MAX_DAYS", "0"),
        ("BACKFILL_MAX_PARTITIONS", "-1"),
        ("BACKFILL_MAX_QUERY_SECONDS", "nan"),
        ("BACKFILL_MAX_FILES", "1.5"),
        ("BACKFILL_RUNS_IN_FLIGHT", "0"),
        ("BACKFILL_TICK_SECONDS", "10 s"),
        ("BACKFILL_FILE_FORMAT", "csv"),
        ("BACKFILL_STORE", "~nobody-of-that-name/files"),
        ("BACKFILL_STORE", "s3://bucket/files"),
        ("BACKFILL_HOME", "file:///data"),
    ],
)
def test_a_malformed_value_is_refused_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: .*found '{value}'$"):
        Settings.load({**NO_FILE, name: value})


@pytest.mark.parametrize("name", ["BACKFILL_ALERT_WEBHOOK", "BACKFILL_SUBSCRIBERS"])
def test_an_address_that_is_refused_is_not_shown_as_it_may_hold_a_token(name: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: ") as refusal:
        Settings.load({**NO_FILE, name: "htp://hooks.example/hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_a_relative_folder_starts_at_the_project_wherever_a_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = Settings.load({**NO_FILE, "BACKFILL_HOME": "here", "BACKFILL_STORE": "there/files"})
    assert found.home == PROJECT / "here"
    assert found.store_root == PROJECT / "there" / "files"


def test_an_absolute_folder_and_a_persons_own_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Settings.load({**NO_FILE, "BACKFILL_HOME": str(tmp_path), "BACKFILL_STORE": "~/files"})
    assert (found.home, found.store_root) == (tmp_path, tmp_path / "files")


def test_the_store_follows_home_unless_it_is_named(tmp_path: Path) -> None:
    found = Settings.load({**NO_FILE, "BACKFILL_HOME": str(tmp_path)})
    assert found.store_root == tmp_path / "store"


def test_settings_that_are_printed_do_not_show_the_password() -> None:
    found = Settings.load({**NO_FILE, "BACKFILL_DATABASE_URL": SECRET_URL})
    assert found.database_url == SECRET_URL
    assert "hunter2" not in f"{found} {found!r}"


def test_subscribers_are_addresses_split_by_commas_and_others_are_refused() -> None:
    assert Settings.load(NO_FILE).subscribers == ()
    two = {**NO_FILE, "BACKFILL_SUBSCRIBERS": "http://a.example/x, https://b.example"}
    assert Settings.load(two).subscribers == ("http://a.example/x", "https://b.example")
    with pytest.raises(SettingsError, match="each address begins with http"):
        Settings.load({**NO_FILE, "BACKFILL_SUBSCRIBERS": "http://a.example,ftp://b.example"})


def test_settings_that_are_handed_on_stand_whatever_dagster_puts_over_the_environment() -> None:
    given = Settings.load(
        {
            **NO_FILE,
            "BACKFILL_DATABASE_URL": SECRET_URL,
            "BACKFILL_MAX_QUERY_SECONDS": "inf",
            "BACKFILL_STORE": "there/files",
            "BACKFILL_SUBSCRIBERS": "http://a.example/x, https://b.example",
        }
    )
    from_env_file = {"BACKFILL_DATABASE_URL": "postgresql://somebodys", "BACKFILL_MAX_DAY": "7"}
    assert Settings.load(given.handed_on() | from_env_file) == given


def test_an_env_file_cannot_name_another_one(env_file: Path) -> None:
    env_file.write_text("BACKFILL_ENV_FILE=other.env\n")
    with pytest.raises(SettingsError, match="BACKFILL_ENV_FILE names the file itself"):
        Settings.load(named(env_file))


def test_settings_handed_on_by_another_version_of_the_program_are_refused_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match="of another version of this program; start `up` anew"):
        Settings.load({"BACKFILL_HANDED_ON": '{"max_weeks": 7}'})
