"""The frame of an operation that makes steps: takes the lease, and checks that the tables are fit for a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ebbtide.delta import Log
from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError
from ebbtide.runtime import Automatic, Diagnosis, Plan, Stepper

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def has_state(plan: Plan) -> bool:
    """Return whether a pipeline has a state table; it has none before its first run.

    Raises:
        TableMismatchError: the state is gone, but other tables have steps.
    """
    if Log(plan.state.path).is_there():
        return True
    Diagnosis.before_first_step(plan).refuse("state")
    return False


def executor_of_runs(executor: Executor) -> Executor:
    """Return the executor of an operation's own runs: the spec and what waits choose their engine, as those of `ebbtide run`."""
    return Automatic(executor.spark) if executor.has_spark else executor


@contextmanager
def stepping(
    executor: Executor,
    plan: Plan,
    started_ms: int = 0,
    *,
    parts: tuple[Diagnosis.Part, ...] = Diagnosis.BELONGING,
) -> Iterator[Stepper]:
    """Hold a pipeline's lease, and yield its stepper.

    Args:
        started_ms: The time, epoch ms; needed if a step advances the pipeline's clock.
        parts: Parts that must have no fault. Default: like a run; a repair asks for less.

    Raises:
        LeaseHeldError: the pipeline is being run.
        TableMismatchError: see `Diagnosis`.
        ConfigError: it has no tables yet.
    """
    if not has_state(plan):
        raise ConfigError.of(
            f"'{plan.spec.name}' has made no step yet.",
            got=f"no state at '{plan.state.path}'",
            next_step="Run 'ebbtide run' first.",
        )
    Diagnosis.before_first_step(plan).refuse("ledger")
    spec = plan.spec
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    # asks: a continuous run yields the lease between two steps.
    with plan.ledger.lease(lease_ttl_s, asks=True) as lease:
        lease.settle()
        stepper = Stepper(plan, lease, started_ms)
        with stepper.kept():
            stepper.diagnosis.refuse(*parts)
            yield stepper
