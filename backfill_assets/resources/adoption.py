"""Taking in a tree of existing files: history that somebody else computed, or that was restored.

Each file is checked as if it had been computed here, and copied through an ordinary attempt, newest
first. It may be killed at any time and repeated: what stands already is adopted.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import CorruptPartitionError, PublishRefusedError, SettingsError
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.plan import State, make_plan
from backfill_assets.stores.files.adopting import Refusal, read_tree
from backfill_assets.stores.files.checkers import Question, answer_to, checkers, processes_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.plan import Plan
    from backfill_assets.core.store import Attempt, CommitRecord
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.files.adopting import FoundFile
    from backfill_assets.stores.files.checkers import Answer, Answers
    from backfill_assets.stores.files.checking import CheckedFile

    _Staged = tuple[FoundFile, CommitRecord]

GROUP_FILES = 1_000  # one flush serves them all; a kill loses at most the work on so many
GROUP_BYTES = 64 * 2**20  # a store with markers keeps a group in memory


@dataclass(slots=True)
class Adoption:
    """What became of the files of a tree.

    Attributes:
        adopted: How many were taken in; in a dry run, how many would be.
        stood_already: How many stood committed with the same content.
        refused: The others, in the order of their paths.
    """

    adopted: int = 0
    stood_already: int = 0
    refused: list[Refusal] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many files of the tree were looked at."""
        return self.adopted + self.stood_already + len(self.refused)

    def facts(self) -> dict[str, Any]:
        """Return everything that is known, in values that JSON can carry."""
        return {
            "adopted": self.adopted,
            "stood_already": self.stood_already,
            "refused": [{"path": r.path, "reason": r.reason} for r in self.refused],
        }


def adopt(
    project: Project,
    directory: Path,
    *,
    dry_run: bool = False,
    on_progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Adoption:
    """Take in the files of a tree that the catalogues expect, after checking each of them.

    The tree is never changed. A crash leaves each partition committed or missing; whatever a run
    commits meanwhile counts as committed before.

    Args:
        on_progress: Told how many of all files are done, now and then.

    Raises:
        SettingsError: the directory is none.
        StoreUnreadableError: the store cannot be read, or was never begun.
    """
    root = directory.expanduser().absolute()
    if not root.is_dir():
        message = f"{root} is no folder; give the one that holds the files to take in"
        raise SettingsError(message)
    tree = read_tree(root, project.catalogues)
    count = len(tree.files) + len(tree.refused)
    outcome = Adoption(refused=tree.refused)
    if not dry_run:
        project.store.sweep()  # what an adoption that was killed left behind
    with (
        nullcontext() if dry_run else project.store.attempt("adopt") as attempt,
        checkers(processes_for(len(tree.files))) as checked,
    ):
        for catalogue in project.catalogues:
            adopter = _Adopter(project, _plan(project, catalogue), attempt, outcome)
            files = [f for f in tree.files if f.partition.query.catalogue == catalogue.name]
            for group in adopter.groups(_in_order(catalogue, files), checked):
                on_progress(outcome.done, count)
                adopter.adopt(group)
    on_progress(outcome.done, count)
    outcome.refused.sort(key=lambda refusal: refusal.path)
    return outcome


class _Adopter:
    """Takes in files of one catalogue; without an attempt it only says what it would do."""

    def __init__(
        self, project: Project, plan: Plan, attempt: Attempt[Any] | None, outcome: Adoption
    ) -> None:
        self._store = project.store
        self._plan = plan
        self._attempt = attempt
        self._outcome = outcome

    def groups(
        self, files: Iterable[FoundFile], checked: Answers
    ) -> Iterator[Iterator[tuple[FoundFile, Answer]]]:
        """Refuse what is not expected, and yield groups of the others, checked as they are taken.

        A group must be taken to its end before the next.
        """
        expected = [found for found in files if self._is_expected(found)]
        answers = zip(expected, checked(map(self._question, expected)), strict=True)
        for _ in range(0, len(expected), GROUP_FILES):
            yield islice(answers, GROUP_FILES)

    def adopt(self, group: Iterable[tuple[FoundFile, Answer]]) -> None:
        """Take a group of checked files in: those that are missing are published together."""
        staged: list[_Staged] = []
        size = 0
        for found, answer in group:
            file = self._wanted(found, answer)
            if file is None:
                continue
            if self._attempt is None or file.content is None:
                self._outcome.adopted += 1
                continue
            self._attempt.stage_file(found.partition, file.record, file.content)
            staged.append((found, file.record))  # not its rows: a group may be of large files
            size += len(file.content)
            if size >= GROUP_BYTES:
                self._publish(self._attempt, staged)
                staged, size = [], 0
        if self._attempt is not None:
            self._publish(self._attempt, staged)

    def _wanted(self, found: FoundFile, answer: Answer) -> CheckedFile | None:
        """Return a file that is to be taken in, or say what becomes of it otherwise."""
        if isinstance(answer, str):
            self._refuse(found, answer)
            return None
        is_missing = found.partition in self._plan.missing
        if not is_missing and self._is_settled(found, answer.record):
            return None
        if self._attempt is not None and answer.content is None:
            # What stood when it was asked about is gone since: now its content is wanted.
            question = Question(found.path, found.partition, self._store.file_format)
            return self._wanted(found, answer_to(question))
        return answer

    def _is_expected(self, found: FoundFile) -> bool:
        """Return whether a partition may be taken in, or refuse its file."""
        partition = found.partition
        if partition in self._plan.expected and partition not in self._plan.held:
            return True
        state, reason = self._plan.explain(partition)
        if state is State.HELD:
            reason = self._store.hold_reason(partition) or reason
        self._refuse(found, f"{partition} is {state}: {reason}")
        return False

    def _question(self, found: FoundFile) -> Question:
        is_wanted = self._attempt is not None and found.partition in self._plan.missing
        to_format = self._store.file_format if is_wanted else None
        return Question(found.path, found.partition, to_format)

    def _publish(self, attempt: Attempt[Any], staged: Sequence[_Staged]) -> None:
        told: list[str] = []
        try:
            published = attempt.publish()
        except PublishRefusedError as refusal:
            published = list(refusal.published)
            told = [str(refusal), *getattr(refusal, "__notes__", ())]
        done = {one.partition: one.adopted for one in published}
        for found, record in staged:
            stood_already = done.get(found.partition)
            if stood_already is None:
                if not self._is_settled(found, record):
                    place = self._store.location(found.partition)
                    self._refuse(found, next((t for t in told if place in t), "\n".join(told)))
            elif stood_already:
                self._outcome.stood_already += 1
            else:
                self._outcome.adopted += 1

    def _is_settled(self, found: FoundFile, record: CommitRecord) -> bool:
        """Compare a file with what stands committed; return False where nothing does."""
        partition = found.partition
        try:
            stands = self._store.records([partition]).get(partition)
        except CorruptPartitionError as error:
            self._refuse(found, f"a damaged file stands there already: {error}")
            return True
        if stands is None:
            return False
        if stands.is_same_content(record):
            self._outcome.stood_already += 1
            return True
        self._refuse(
            found,
            f"{partition} is committed with digest {stands.digest}, and this file has digest "
            f"{record.digest}; delete {self._store.location(partition)} to take this one in",
        )
        return True

    def _refuse(self, found: FoundFile, reason: str) -> None:
        self._outcome.refused.append(Refusal(found.path, reason))


def _plan(project: Project, catalogue: Catalogue) -> Plan:
    """Return the plan of a store, also of one that is yet to be begun."""
    if project.store.exists():
        return project.plan(catalogue)
    nothing = PartitionSet.empty(catalogue)
    now = project.clock.now()
    return make_plan(catalogue, present=nothing, held=nothing, in_flight=nothing, now=now)


def _in_order(catalogue: Catalogue, files: Iterable[FoundFile]) -> list[FoundFile]:
    """Return files with the newest day first, then in catalogue order."""
    places = {name: place for place, name in enumerate(catalogue.queries_by_name)}

    def order(found: FoundFile) -> tuple[int, int, int]:
        partition = found.partition
        bit = catalogue.unit_bits[partition.unit]
        return -partition.day.toordinal(), places[partition.query.name], bit

    return sorted(files, key=order)
