"""The locks by which processes agree."""

import os
from pathlib import Path

import pytest

from backfill_assets.stores.postgres.errors import LockTimeoutError
from backfill_assets.stores.postgres.locks import (
    PROCESS_GUARD,
    critical_section,
    heritable,
    is_held,
    take_shared,
)


def test_a_lock_that_is_held_too_long_is_named_with_the_way_to_find_its_holder(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "a.lock"
    with heritable(lock, timeout_seconds=1):
        assert is_held(lock)
        with pytest.raises(LockTimeoutError, match=rf"{lock}: another process .* `fuser -v"):
            take_shared(lock, timeout_seconds=0.05)
    assert not is_held(lock)


def test_shared_holders_do_not_hinder_each_other_and_exclude_the_exclusive(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    holders = [take_shared(lock, timeout_seconds=1) for _ in range(2)]
    with pytest.raises(LockTimeoutError), heritable(lock, timeout_seconds=0.05):
        pass
    for holder in holders:
        os.close(holder)
    with heritable(lock, timeout_seconds=1):
        pass


def test_a_child_forked_inside_a_section_holds_none_of_its_locks(tmp_path: Path) -> None:
    inherited, section = tmp_path / "inherited.lock", tmp_path / "section.lock"
    to_parent, to_child = os.pipe(), os.pipe()
    with (
        PROCESS_GUARD,
        heritable(inherited, timeout_seconds=1),
        critical_section(section, timeout_seconds=1),
    ):
        child = os.fork()
        if child == 0:
            os.close(to_child[1])
            os.write(to_parent[1], b"!")
            os.read(to_child[0], 1)  # until the parent has looked
            os._exit(0)
        os.read(to_parent[0], 1)
    try:
        assert not is_held(inherited)
        with critical_section(section, timeout_seconds=1):
            pass
    finally:
        for descriptor in (*to_parent, *to_child):
            os.close(descriptor)
        assert os.waitpid(child, 0)[1] == 0


def test_a_child_forked_while_another_thread_is_busy_can_use_the_guard(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    with PROCESS_GUARD:
        child = os.fork()
        if child == 0:
            with PROCESS_GUARD, critical_section(lock, timeout_seconds=1):
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
