"""Markers, and what one look at a day's folder says about each unit of it.

A unit's files under the marker protocol, beside ``JFK.hold`` and ``JFK.restate``:

* ``JFK.3.0f3a….parquet``: data, of the third commit, with the digest of its own bytes;
* ``JFK.3.commit``: the marker that commits it, with its name, size, digest, and its own checksum.

The highest whole marker alone counts, and only while its data file stands: it is committed. A
marker that was cut short is none. A number is taken by creating the marker's name, which one
process alone can do, so two commits on top of the same one never both happen.

Whoever reads ``*.parquet`` without the markers may meet data that is not committed yet, or not any
more: a crash leaves it until the partition's next commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.stores.files.layout import MARKER_SUFFIX
from backfill_assets.stores.files.scanning import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADER = b'{"marker":1,'  # 1 is the version of this text
_FORM = re.compile(
    rb'(?P<body>\{"marker":1,"number":(?P<number>[1-9][0-9]{0,8}),"data":"(?P<data>[\w%.-]+)",'
    rb'"size":(?P<size>[0-9]{1,18}),"sha256":"(?P<sha256>[0-9a-f]{64})")'
    rb',"checksum":"(?P<checksum>[0-9a-f]{64})"\}\n'
)
_LONGEST = 1_024  # bytes; the form with a name of 255 has half of it
_DIGITS = 9  # of a number; the longest name still fits a file system's 255 bytes
_DIGEST_CHARACTERS = 32  # 128 bits of the SHA-256; the marker has all of it
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Marker:
    """What one marker commits.

    Attributes:
        number: Of the commit, from 1; in its own name and in that of the data file.
        data: The name of the data file, in the same folder.
        size: Of the data file, in bytes.
        sha256: Of the data file's bytes, in hexadecimal digits.
    """

    number: int
    data: str
    size: int
    sha256: str

    @classmethod
    def of(cls, segment: str, number: int, content: memoryview, suffix: str) -> Marker:
        """Return the marker that commits some content as a unit's file of that number."""
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(number, _data_name(segment, number, sha256, suffix), len(content), sha256)

    def describes(self, content: bytes) -> bool:
        """Return whether some content is the one that was committed."""
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256

    def text(self) -> bytes:
        """Return the marker's bytes: JSON that ends with a checksum of all before it."""
        fields = json.dumps(asdict(self), separators=(",", ":"))
        body = _HEADER + fields[1:-1].encode()
        return body + b',"checksum":"' + _checksum(body) + b'"}\n'


def parse_marker(content: bytes) -> Marker | None:
    """Return the marker that a file holds, or None where it is not whole."""
    # Read by its one form: a scan does this for every partition, and JSON takes thrice the time.
    found = _FORM.fullmatch(content)
    if found is None or found["checksum"] != _checksum(found["body"]):
        return None
    data, sha256 = found["data"].decode(), found["sha256"].decode()
    return Marker(int(found["number"]), data, int(found["size"]), sha256)


def is_own(content: bytes, segment: str, number: int, suffix: str) -> bool:
    """Return whether this is a unit's marker, or what a crash or a disk left of one."""
    if parse_marker(content) is not None:
        return marker_in(content, segment, number, suffix) is not None
    start = content.rstrip(b"\0")  # a file whose length alone became durable
    return start.startswith(_HEADER) or _HEADER.startswith(start)


@dataclass(slots=True)
class UnitFiles:
    """What a look at a folder shows of one unit.

    Attributes:
        markers: The numbers of its markers that are regular files, whole or not.
        last_number: The highest number that a marker's name takes, whatever stands there; or 0.
        data: The names of its data files, and their numbers.
    """

    markers: list[int] = field(default_factory=list)
    last_number: int = 0
    data: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class DayFiles:
    """What a look at a folder shows.

    Attributes:
        units: The files of each segment that has any.
        others: All other entries: holds, wishes, and what is not the protocol's.
    """

    units: dict[str, UnitFiles] = field(default_factory=dict)
    others: list[os.DirEntry[str]] = field(default_factory=list)


def look(folder: str, suffix: str) -> DayFiles:
    """Return what stands in a day's folder by its names; a folder that is not there is empty."""
    found = DayFiles()
    for entry in entries_of(folder):
        name = parse_name(entry.name, suffix)
        if name is None:
            found.others.append(entry)
            continue
        segment, number, is_marker = name
        files = found.units.get(segment)
        if files is None:
            files = found.units[segment] = UnitFiles()
        if is_marker and number > files.last_number:
            files.last_number = number
        if not entry.is_file(follow_symlinks=False):
            found.others.append(entry)
        elif is_marker:
            files.markers.append(number)
        else:
            files.data[entry.name] = number
    return found


def committed_in(folder: str, segment: str, numbers: Iterable[int], suffix: str) -> Marker | None:
    """Return the highest whole marker among a unit's, or None where none is whole."""
    for number in sorted(numbers, reverse=True):
        marker = marker_at(folder, segment, number, suffix)
        if marker is not None:
            return marker
    return None


def marker_at(folder: str, segment: str, number: int, suffix: str) -> Marker | None:
    """Return a unit's marker of a number, or None where it is not whole.

    A regular file stands there, or nothing.
    """
    return marker_in(read_marker(folder, segment, number), segment, number, suffix)


def marker_in(content: bytes, segment: str, number: int, suffix: str) -> Marker | None:
    """Return the marker in a file's content, or None where it is not whole or another's."""
    marker = parse_marker(content)
    if marker is None or marker.number != number:
        return None
    is_own = marker.data == _data_name(segment, number, marker.sha256, suffix)
    return marker if is_own else None


def read_marker(folder: str, segment: str, number: int) -> bytes:
    """Return the content of a marker's file, at most a little more than one has; b"" if gone."""
    try:
        path = f"{folder}/{marker_name(segment, number)}"
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    try:
        return os.read(descriptor, _LONGEST + 1)
    finally:
        os.close(descriptor)


def remove_marker(folder: str, segment: str, number: int, suffix: str) -> None:
    """Remove a marker, also one that was cut short; a file that is none is left alone."""
    content = read_marker(folder, segment, number)
    if is_own(content, segment, number, suffix):
        Path(folder, marker_name(segment, number)).unlink(missing_ok=True)


def marker_name(segment: str, number: int) -> str:
    """Return the name of a unit's marker."""
    return f"{segment}.{number}{MARKER_SUFFIX}"


def parse_name(name: str, suffix: str) -> tuple[str, int, bool] | None:
    """Return segment, number, and whether it is a marker; or None where the name is no such name.

    A segment never has a dot.
    """
    segment, *middle, last = name.split(".")
    if not middle or not _is_number(middle[0]):
        return None
    if len(middle) == 1:
        return (segment, int(middle[0]), True) if "." + last == MARKER_SUFFIX else None
    is_data = len(middle) == 2 and "." + last == suffix and _is_digest(middle[1])
    return (segment, int(middle[0]), False) if is_data else None


def _data_name(segment: str, number: int, sha256: str, suffix: str) -> str:
    return f"{segment}.{number}.{sha256[:_DIGEST_CHARACTERS]}{suffix}"


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _DIGITS


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST_CHARACTERS and _HEX.issuperset(text)
