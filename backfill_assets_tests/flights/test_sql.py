from dataclasses import FrozenInstanceError

import pytest

from backfill_assets.stores.sql import load_statements, parse_statements

TWO = """-- What the file is about.

-- name: first
-- Count. No row: never.
SELECT count(*) -- all
  FROM t;

-- name: second
-- Two lines
-- of comment.
DELETE FROM t;
DELETE FROM u;
"""


def test_statements_have_their_name_and_keep_the_order_of_the_file():
    statements = parse_statements("two.sql", TWO)
    assert list(statements) == ["first", "second"]
    assert statements["first"] == "SELECT count(*) -- all\n  FROM t;"
    assert statements["second"] == "DELETE FROM t;\nDELETE FROM u;"


def test_statements_are_frozen():
    statements = parse_statements("two.sql", TWO)
    with pytest.raises(FrozenInstanceError):
        statements.file = "other.sql"  # type: ignore[misc]
    with pytest.raises(TypeError):
        statements.texts["first"] = "DROP TABLE t;"  # type: ignore[index]


def test_an_unknown_name_is_answered_with_the_names_there_are():
    with pytest.raises(LookupError, match=r"statement 'third': two.sql has first, second"):
        parse_statements("two.sql", TWO)["third"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "bad.sql has no statement; begin each with a line '-- name: <name>'"),
        ("SELECT 1;\n-- name: a\n-- A.\nSELECT 2;", "bad.sql has text before the first"),
        ("-- name: a b\n-- A.\nSELECT 1;", "bad.sql names a statement 'a b'; use lower-case"),
        ("-- name:\n-- A.\nSELECT 1;", "bad.sql names a statement ''; use lower-case"),
        ("-- name: a\nSELECT 1;", "bad.sql says nothing about 'a'; put a '-- ' sentence"),
        ("-- name: a\n-- A.\n", "bad.sql has no statement under 'a'; write one"),
        ("-- name: a\n-- A.\nSELECT 1;\n\n-- name: a\n-- A.\nSELECT 2;", "two statements 'a'"),
    ],
)
def test_a_malformed_file_is_refused_by_name(text: str, message: str):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse_statements("bad.sql", text)


def test_files_are_found_in_their_package():
    statements = load_statements("backfill_assets.flights", "queries.sql")
    assert list(statements) == ["session", "carrier", "destination", "hour", "manufacturer"]
