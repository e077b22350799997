"""Text and its path segment: one-to-one, and never a way out of the directory."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.core.segments import segment, segments, text_of
from backfill_assets_tests.core.strategies import any_text

NASTY = {
    "..": "%2E%2E",
    "../../x": "%2E%2E%2F%2E%2E%2Fx",
    "/etc/x": "%2Fetc%2Fx",
    "C:\\x": "C%3A%5Cx",
    "~": "%7E",
    "$HOME": "%24HOME",
    "CON": "%43%4F%4E",
    "aux": "%61%75%78",
    "COM1": "%43%4F%4D%31",
    "CONNECT": "CONNECT",
    "end.": "end%2E",
    "end ": "end%20",
    "Q1 2024": "Q1%202024",
    "É": "%C3%89",
    "🛫": "%F0%9F%9B%AB",
    "a*b?": "a%2Ab%3F",
    "%2E": "%252E",
    ".attempts": "%2Eattempts",
    "JFK": "JFK",
    "north_1-b": "north_1-b",
}

unlike_texts = st.lists(any_text, unique=True, max_size=12)


@pytest.mark.parametrize(("text", "expected"), NASTY.items())
def test_nasty_text_becomes_a_plain_segment_and_comes_back(text: str, expected: str) -> None:
    assert segment(text) == expected
    assert text_of(expected) == text


@given(st.text())
@example("")
@example("CON")
def test_a_segment_gives_back_its_text(text: str) -> None:
    assert text_of(segment(text)) == text


@given(any_text, any_text)
@example("%41", "A")
@example("con", "CON")
def test_distinct_texts_have_distinct_segments(one: str, other: str) -> None:
    assert (segment(one) == segment(other)) == (one == other)


@given(any_text)
def test_a_segment_is_one_plain_part_of_a_path_on_any_system(text: str) -> None:
    name = segment(text)
    assert name.isascii()
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-%")
    assert PurePosixPath("/root", name).parts == ("/", "root", name)
    assert PureWindowsPath("C:/root", name).parts == ("C:\\", "root", name)
    assert os.path.normpath(f"/root/{name}") == f"/root/{name}"
    assert not PureWindowsPath(name).is_reserved()


def test_every_nasty_name_is_written_below_its_directory(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    for text in NASTY:
        (inside / f"{segment(text)}.parquet").touch()
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parent for path in written} == {inside}
    assert sorted(text_of(path.stem) for path in written) == sorted(NASTY)


@given(unlike_texts)
@example(["North", "north", "NORTH"])
@example(["É", "é"])
@example(["K", "\u212a"])  # the Kelvin sign folds to k
@example(["con", "CON", "Con"])
def test_segments_stay_distinct_when_case_is_folded(texts: list[str]) -> None:
    chosen = segments(texts)
    assert list(chosen) == texts
    assert [text_of(name) for name in chosen.values()] == texts
    for fold in (str.lower, str.upper, str.casefold):
        assert len({fold(name) for name in chosen.values()}) == len(texts)


def test_only_the_later_of_two_twins_is_encoded_in_full() -> None:
    assert segments(["North", "north"]) == {"North": "North", "north": "%6E%6F%72%74%68"}


@given(unlike_texts, any_text)
def test_adding_a_text_never_moves_the_others(texts: list[str], new: str) -> None:
    before = segments(texts)
    after = segments([*texts, new] if new not in texts else texts)
    assert {text: after[text] for text in texts} == before


@pytest.mark.parametrize("broken", ["%FF", "%C3", "%ED%A0%80"])
def test_a_segment_that_is_no_text_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match="utf-8"):
        text_of(broken)
