"""Random walks of a small table: the records that a capture sends of it, and its rows at the end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

from local.support import Row
from oracles.arrival_orders import TEXTS, Op, partitions, sent_and_shown

KEYS = (1, 2, 3, 4)
BESIDE = 9
"""The key that a row has while others rotate."""


class Walk(NamedTuple):
    """What happened to a table.

    Args:
        ops: The statements.
        records: What was sent, in the order of the log.
        rows: The table at the end.
    """

    ops: list[Op]
    records: list[str]
    rows: dict[int, Row]

    @property
    def text(self) -> str:
        """The statements, for messages."""
        return " ".join(f"{op.kind}{op.key}>{op.new_key}:{op.sent}" for op in self.ops)


def walk(chance: random.Random, n_acts: int, *, forms: str = "mk", reads: bool = True) -> Walk:
    """Let a table change: rows are created, updated, deleted and inserted again, keys change, are swapped and rotate.

    Args:
        chance: Decides.
        n_acts: How often something happens.
        forms: How changes of the key are sent, see `Op.kind`.
        reads: Snapshots read rows in between; the first rows are known from one alone.
    """
    first = chance.sample(KEYS, 3)
    ops = [Op("r" if reads else "c", key) for key in first]
    there = set(first)
    for _ in range(n_acts):
        acts = _act(chance, there, forms, reads=reads)
        for op in acts:
            there -= {op.key} if op.new_key or op.kind == "d" else set()
            there |= {op.new_key or op.key} if op.kind != "d" else set()
        ops += acts
    return Walk(ops, *sent_and_shown(ops))


def _act(chance: random.Random, there: set[int], forms: str, *, reads: bool) -> list[Op]:
    free = [key for key in KEYS if key not in there]
    kind = chance.choice("rudcmmooo")
    if kind == "r" and reads:
        return [Op("r", key) for key in sorted(there)][:: chance.choice((1, 2))]
    if not there or (kind == "c" and free):
        return [Op("c", chance.choice(free))]
    if kind == "d":
        return [Op("d", chance.choice(sorted(there)))]
    if kind == "m" and free:
        return [_moved(chance, forms, chance.choice(sorted(there)), chance.choice(free))]
    if kind == "o" and len(there) > 1:
        keys = chance.sample(sorted(there), chance.randint(2, len(there)))
        return rotated([*keys], forms, chance)
    return [Op("u", chance.choice(sorted(there)), _sent(chance))]


def rotated(keys: Sequence[int], forms: str, chance: random.Random) -> list[Op]:
    """Return the changes of the key by which each row gets the key before its own, the first one the last."""
    first, *_, last = keys
    return [
        _moved(chance, forms, first, BESIDE),
        *(_moved(chance, forms, key, before) for before, key in itertools.pairwise(keys)),
        _moved(chance, forms, BESIDE, last),
    ]


def _moved(chance: random.Random, forms: str, key: int, new_key: int) -> Op:
    sent = _sent(chance) if chance.random() < 0.2 else ""
    return Op(chance.choice(forms), key, sent, new_key)


def _sent(chance: random.Random) -> str:
    return chance.choice(("", *TEXTS))


def steps_of(chance: random.Random, order: Sequence[int]) -> list[tuple[int, ...]]:
    """Cut an order of arrival into steps."""
    most = chance.choice((1, 2, 5, len(order)))
    steps = []
    left = list(order)
    while left:
        size = chance.randint(1, most)
        steps.append(tuple(left[:size]))
        del left[:size]
    return steps


def merged(chance: random.Random, ops: Sequence[Op]) -> list[int]:
    """Return an order in which each key's records come in their own order, read at any pace."""
    queues = partitions(ops)
    order: list[int] = []
    while queues:
        queue = chance.choice(queues)
        n_read = chance.randint(1, 4)
        order += queue[:n_read]
        del queue[:n_read]
        queues = [queue for queue in queues if queue]
    return order
