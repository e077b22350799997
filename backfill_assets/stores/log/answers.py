"""What a caller is told about an operation that it may not start."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.errors import (
    BudgetSpentError,
    BusyError,
    KeyReusedError,
    OutcomeUnknownError,
    SealedError,
)
from backfill_assets.core.operations import Busy, Claim, Done, Operation, Refused, Status

if TYPE_CHECKING:
    from backfill_assets.core.operations import OperationState
    from backfill_assets.stores.log.ledger import StoredResult


def answer_at_once(
    operation: Operation, key: str, fingerprint: str, stored: StoredResult
) -> Done | Refused | None:
    """Return what one read of the stored result settles, or None where a claim may follow."""
    if stored.is_sealed:
        return Refused(SealedError(f"{operation.name} {key} was sealed; see its trail"))
    if stored.fingerprint != fingerprint:
        return Refused(key_reused(operation, key))
    if stored.status == Status.COMPLETED:
        return Done(stored.result, stored.attempt)
    return None


def answer_to(
    operation: Operation, fingerprint: str, state: OperationState, now: datetime
) -> Claim:
    """Return why a claim was not granted."""
    if state.is_sealed:
        message = f"{operation.name} {state.key} was sealed: {state.sealed_reason}"
        return Refused(SealedError(message))
    if state.fingerprint != fingerprint:
        return Refused(key_reused(operation, state.key))
    if state.status is Status.COMPLETED:
        return Done(state.result, state.attempt)
    if (free_at := _free_at(state)) is not None and free_at > now:
        return Busy(free_at - now, state.worker)
    return _answer_to_ended(operation, state)


def _free_at(state: OperationState) -> datetime | None:
    """Return when another attempt may follow, or None where that is not a matter of time."""
    return state.lease_until if state.status is Status.PROCESSING else state.retry_at


def _answer_to_ended(operation: Operation, state: OperationState) -> Claim:
    is_processing = state.status is Status.PROCESSING
    is_spent = operation.policy.is_spent(state.spent)
    if is_processing and not is_spent:
        return Busy(timedelta(0), state.worker)  # its lease ran out in this moment
    # An owner whose lease has run out may have acted.
    if (state.in_doubt or is_processing) and not operation.may_repeat_in_doubt:
        return Refused(outcome_unknown(operation, state.key))
    if _free_at(state) is None or is_spent:
        return Refused(budget_spent(operation, state))
    return Busy(timedelta(0), state.worker)  # its back-off ended in this moment


def busy_error(operation: Operation, key: str, busy: Busy) -> BusyError:
    """Return the error of an operation that somebody else works on, or that backs off."""
    seconds = busy.retry_after.total_seconds()
    return BusyError(
        f"{operation.name} {key} is {busy.worker}'s; ask again in {seconds:.1f} s",
        busy.retry_after,
    )


def key_reused(operation: Operation, key: str) -> KeyReusedError:
    """Return the error of a key that comes with another payload."""
    return KeyReusedError(
        f"{operation.name} {key}: the key was used for another payload before; give every request "
        "a key of its own"
    )


def outcome_unknown(operation: Operation, key: str) -> OutcomeUnknownError:
    """Return the error of an operation that may have happened and may not be repeated."""
    return OutcomeUnknownError(
        f"{operation.name} {key} may have happened, and nothing can tell; find out, and seal it, "
        "or reopen it as settled"
    )


def budget_spent(operation: Operation, state: OperationState) -> BudgetSpentError:
    """Return the error of an operation that may not be tried again by itself."""
    last = "" if state.error is None else f"; the last said: {state.error.error_message}"
    return BudgetSpentError(
        f"{operation.name} {state.key}: {state.spent} attempts, and no other may start{last}; "
        "mend the cause, and reopen it"
    )
