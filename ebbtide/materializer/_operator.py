"""The upsert materializer, record by record.

| change | history before | emitted |
|---|---|---|
| +I, +U | empty | `+I` the row |
| +I, +U | not empty; the row is appended, or with an upsert key replaces the row that it matches | `+U` the row |
| -U, -D | nothing with its equality key | nothing |
| -U, -D | its only row | `-D` the retraction's row |
| -U, -D | removes the newest row | `+U` the row that is newest now |
| -U, -D | removes another | nothing |

Source: FLIP-544; Flink's `SinkUpsertMaterializer`, strategy LEGACY (2.3's MAP damages its state with an upsert key).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ebbtide.changelog import RowKind
from ebbtide.materializer._element import Row
from ebbtide.materializer._multiset import OrderedMultiset


class Emitted(NamedTuple):
    """A record for the sink."""

    kind: RowKind
    row: Row


class SinkUpsertMaterializer:
    """Turns a changelog into upserts and deletes of a primary key.

    Args:
        histories: The live rows of each key.

    Example:
        >>> from ebbtide.stores._heap import HeapStore
        >>> materializer = SinkUpsertMaterializer(OrderedMultiset(HeapStore()))
        >>> for kind, row in [("+I", "a"), ("+U", "b"), ("-U", "a"), ("-D", "b")]:
        ...     print(materializer.process(RowKind(kind), 1, (row,)))
        Emitted(kind=<RowKind.INSERT: '+I'>, row=('a',))
        Emitted(kind=<RowKind.UPDATE_AFTER: '+U'>, row=('b',))
        None
        Emitted(kind=<RowKind.DELETE: '-D'>, row=('b',))
    """

    def __init__(self, histories: OrderedMultiset) -> None:
        self._histories = histories

    def process(
        self,
        kind: RowKind,
        key: Hashable,
        row: Row,
        *,
        stamp_ms: int = 0,
        now_ms: int = 0,
    ) -> Emitted | None:
        """Apply one change.

        Args:
            kind: Kind of the change.
            key: Its primary key.
            row: Its row.
            stamp_ms: When the time to live of an added row begins, epoch ms.
            now_ms: The time that rows expire by, epoch ms.

        Returns:
            The change for the sink; None: no change.
        """
        if kind.adds:
            was_empty = self._histories.add(key, row, stamp_ms=stamp_ms, now_ms=now_ms)
            emitted_kind = RowKind.INSERT if was_empty else RowKind.UPDATE_AFTER
            return Emitted(emitted_kind, row)
        removed = self._histories.remove(key, row, now_ms=now_ms)
        if removed is None or not removed.was_last:
            return None
        if removed.last is None:
            return Emitted(RowKind.DELETE, row)
        return Emitted(RowKind.UPDATE_AFTER, removed.last)
