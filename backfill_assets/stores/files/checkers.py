"""Who checks files: this process, or several others that hand the results back in order.

The others only read: they know no store and no catalogue, and nothing of theirs is visible to
anybody. They live as long as the process that asks, whatever ends it, because each ends when the
pipe of its questions does.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, NoReturn

from backfill_assets.core.errors import CorruptPartitionError, HelperDiedError, SourceError
from backfill_assets.core.partitions import Partition
from backfill_assets.core.store import CommitRecord
from backfill_assets.stores.files.checking import CheckedFile, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Answer = CheckedFile | str
    Answers = Callable[[Iterable["Question"]], Iterator[Answer]]

WORTH_STARTING = 2_000  # files; two processes take as long to start as to check a thousand
MOST_PROCESSES = 4  # so many keep the one busy that commits
BATCH_FILES = 50  # 10 to 20 ms of work
BATCHES_AHEAD = 8  # for each process, so that it goes on while a group is flushed
FRAME_BYTES = 256 * 1024  # of contents; what a process keeps in memory, beside one file
PIPE_BYTES = 2**20  # what Linux allows to everybody

_SERVE = """
import sys
sys.path[:] = {path!r}
from backfill_assets.stores.files.checkers import serve
serve({answers})
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A file to be checked.

    Attributes:
        to_format: Of the store that takes it in; None where only its record is wanted.
    """

    path: str
    partition: Partition
    to_format: str | None


def processes_for(files: int) -> int:
    """Return how many processes are worth starting for a number of files; 0 for none."""
    if files < WORTH_STARTING:
        return 0
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return 0 if cores == 1 else min(cores, MOST_PROCESSES)


@contextmanager
def checkers(processes: int) -> Iterator[Answers]:
    """Yield what answers questions one by one, in their order; a reason where a file is refused.

    Args:
        processes: How many do it; with 0 it is this one.

    Raises:
        HelperDiedError: while answers are taken: a process ended by itself.
    """
    if processes == 0:
        yield lambda questions: map(answer_to, questions)
        return
    with ExitStack() as running:
        helpers = [running.enter_context(_Helper()) for _ in range(processes)]
        yield lambda questions: _spread(helpers, questions)


def _spread(helpers: list[_Helper], questions: Iterable[Question]) -> Iterator[Answer]:
    """Hand batches to the helpers in turns, some ahead, and yield the answers in order."""
    left = iter(questions)
    asked: deque[tuple[_Helper, list[Question]]] = deque()
    for helper in cycle(helpers):
        batch = list(islice(left, BATCH_FILES))
        if not batch:
            break
        helper.ask(batch)
        asked.append((helper, batch))
        if len(asked) > BATCHES_AHEAD * len(helpers):
            first, of_first = asked.popleft()
            yield from first.answers(of_first)
    for helper, batch in asked:
        yield from helper.answers(batch)


class _Helper:
    """A process that answers questions; it is dead at the end of the context."""

    def __init__(self) -> None:
        # A pipe of their own: whatever prints does not print among the answers.
        answers, to_be_given = os.pipe()
        self._answers = os.fdopen(answers, "rb")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-c", _SERVE.format(path=sys.path, answers=to_be_given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[to_be_given],
                process_group=0,  # Ctrl-C is for the one that asks, which ends this one
            )
        except BaseException:
            self._answers.close()
            raise
        finally:
            os.close(to_be_given)
        with suppress(AttributeError, OSError):  # only Linux has it, and not beyond a limit
            fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def __enter__(self) -> _Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it keeps nothing that could be lost
        self._process.wait()
        self._answers.close()
        with suppress(OSError):  # it has died with questions unread
            self._questions.close()

    def ask(self, batch: list[Question]) -> None:
        """Send a batch; this never waits for answers to be taken, as the other side always reads.

        Raises:
            HelperDiedError: the process ended by itself.
        """
        packed = [
            (one.path, one.partition.query, one.partition.day, one.partition.unit, one.to_format)
            for one in batch
        ]
        try:
            pickle.dump(packed, self._questions)
            self._questions.flush()
        except OSError as error:
            raise self._death(batch) from error

    def answers(self, batch: list[Question]) -> Iterator[Answer]:
        """Yield the answers of the batch that was sent first of those that have none yet.

        Raises:
            HelperDiedError: the process ended by itself.
        """
        count = 0
        while count < len(batch):
            try:
                frame = pickle.load(self._answers)  # noqa: S301 - our own process wrote it
            except (EOFError, pickle.UnpicklingError) as error:  # half an answer, or none
                raise self._death(batch[count:]) from error
            count += len(frame)
            yield from map(_unpacked, frame)

    @property
    def _questions(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        return self._process.stdin

    def _death(self, batch: list[Question]) -> HelperDiedError:
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return HelperDiedError(
            f"a process that checks files ended {how}, at {batch[0].path} or soon after it. What "
            "was taken in before stands; see that there is memory for large files, and adopt again"
        )


class _WithoutPandas:
    """Says that there is no pandas: Arrow would import it with its first array, for 0.4 s."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse to find it; nothing that is checked is a data frame."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def serve(descriptor: int) -> None:
    """Answer questions from standard input until it ends: what a helper does all its life.

    Args:
        descriptor: Where the answers go.
    """
    sys.meta_path.insert(0, _WithoutPandas)
    answers = os.fdopen(descriptor, "wb")
    batches: SimpleQueue[list[Any]] = SimpleQueue()
    listening = partial(_listen, batches)
    threading.Thread(target=_for_life, args=(listening,), daemon=True).start()
    _for_life(partial(_speak, batches, answers))


def _for_life(act: Callable[[], NoReturn]) -> NoReturn:
    """Act until that fails, and end this process at once, whatever else is at work in it."""
    try:
        act()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        os._exit(0)  # nobody asks any more
    except BaseException:  # noqa: BLE001 - whatever it is, the one that asks says that this ended
        traceback.print_exc()
        os._exit(1)


def _listen(batches: SimpleQueue[list[Any]]) -> NoReturn:
    """Take every batch at once, so that who asks never waits."""
    while True:
        batches.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - our own process wrote it


def _speak(batches: SimpleQueue[list[Any]], answers: IO[bytes]) -> NoReturn:
    while True:
        for frame in _frames(batches.get()):
            pickle.dump(frame, answers)
            answers.flush()


def _frames(batch: list[Any]) -> Iterator[list[Any]]:
    """Yield the answers to a batch, as many at once as may be kept."""
    frame: list[Any] = []
    size = 0
    for path, query, day, unit, to_format in batch:
        packed, content = _packed(answer_to(Question(path, Partition(query, day, unit), to_format)))
        frame.append((packed, content))
        size += len(content or b"")
        if size >= FRAME_BYTES:
            yield frame
            frame, size = [], 0
    if frame:
        yield frame


def answer_to(question: Question) -> Answer:
    """Return a checked file, or why it is not taken in."""
    try:
        return check(question.path, question.partition, to_format=question.to_format)
    except (CorruptPartitionError, SourceError) as error:
        return str(error)


def _packed(answer: Answer) -> tuple[tuple[Any, ...] | str, bytes | None]:
    """Return an answer in plain values: pickling a frozen dataclass takes ten times as long."""
    if isinstance(answer, str):
        return answer, None
    record = answer.record
    fields = (record.partition, record.version, record.rows, record.digest, record.source)
    return fields, None if answer.content is None else bytes(answer.content)


def _unpacked(packed: tuple[tuple[Any, ...] | str, bytes | None]) -> Answer:
    said, content = packed
    return said if isinstance(said, str) else CheckedFile(CommitRecord(*said), content)
