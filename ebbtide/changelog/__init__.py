"""The rows of a changelog: their kinds, the order of their arrival, their sequences and their origins.

`changelog_schema` gives the reserved columns. `RowKind` is Flink's; `TRUNCATE` empties the table. `ORDER` and `order_struct` say when
a change arrived, `SequenceColumns` are what a sequence consists of, `rank_sequences` compares sequences, and `OffsetRanges` knows which records were read before.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.changelog._offsets import Intervals as Intervals
    from ebbtide.changelog._offsets import OffsetRanges as OffsetRanges
    from ebbtide.changelog._rows import ORDER as ORDER
    from ebbtide.changelog._rows import ORIGIN as ORIGIN
    from ebbtide.changelog._rows import TRUNCATE as TRUNCATE
    from ebbtide.changelog._rows import RowKind as RowKind
    from ebbtide.changelog._rows import changelog_schema as changelog_schema
    from ebbtide.changelog._rows import order_struct as order_struct
    from ebbtide.changelog._sequences import UNKNOWN as UNKNOWN
    from ebbtide.changelog._sequences import SequenceColumns as SequenceColumns
    from ebbtide.changelog._sequences import rank_sequences as rank_sequences
else:
    __getattr__, __all__ = names_of(__name__)
