"""Named SQL statements, read from ``.sql`` files that stand beside the code that uses them.

A file is a list of statements. Each begins with a line ``-- name: <name>``; the comment under it
says in a sentence what the statement does and what no row means; the statement follows. Nothing
here talks to a database, and nothing is put into a statement: values are bound by the driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEADING = re.compile(r"^--[ \t]*name:(.*)$", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of one file by name; iterating gives the names in the file's order."""

    file: str
    texts: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement, without its name and sentence.

        Raises:
            LookupError: the file has no statement of that name.
        """
        try:
            return self.texts[name]
        except KeyError:
            message = f"statement {name!r}: {self.file} has {', '.join(self.texts)}"
            raise LookupError(message) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


def load_statements(package: str, file: str) -> Statements:
    """Return the statements of a file in a package's folder.

    Raises:
        ValueError: the file is not of the form that this module describes.
    """
    return parse_statements(file, files(package).joinpath(file).read_text(encoding="utf-8"))


def parse_statements(file: str, text: str) -> Statements:
    """Return the statements in ``text``; ``file`` is named in errors.

    Raises:
        ValueError: the text is not of the form that this module describes.
    """
    before, *parts = _HEADING.split(text)
    if not parts:
        raise _malformed(file, "has no statement; begin each with a line '-- name: <name>'")
    if _without_comments(before):
        raise _malformed(file, "has text before the first '-- name:'; give it a name")
    texts: dict[str, str] = {}
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        name = heading.strip()
        if name in texts:
            raise _malformed(file, f"has two statements {name!r}; rename one")
        texts[name] = _statement(file, name, body)
    return Statements(file, MappingProxyType(texts))


def _statement(file: str, name: str, body: str) -> str:
    if not _NAME.fullmatch(name):
        raise _malformed(file, f"names a statement {name!r}; use lower-case letters, digits and _")
    lines = body.strip().splitlines()
    sentence_lines = next((i for i, x in enumerate(lines) if not x.startswith("--")), len(lines))
    if sentence_lines == 0:
        raise _malformed(file, f"says nothing about {name!r}; put a '-- ' sentence under its name")
    statement = "\n".join(lines[sentence_lines:]).strip()
    if not _without_comments(statement):
        raise _malformed(file, f"has no statement under {name!r}; write one, or remove the name")
    return statement


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def _malformed(file: str, what: str) -> ValueError:
    return ValueError(f"{file} {what}")
