"""The rows of a changelog: their kinds, the order of their arrival, their sequences and their origins.

`changelog_schema` gives the reserved columns. `RowKind` is Flink's; `TRUNCATE` empties the table. `ORDER` and `order_struct` say when
a change arrived, `rank_sequences` compares sequences, and `OffsetRanges` knows which records were read before.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.changelog._offsets import Intervals as Intervals
    from ebbtide.changelog._offsets import OffsetRanges as OffsetRanges
    from ebbtide.changelog._offsets import origin_offsets as origin_offsets
    from ebbtide.changelog._order import ORDER as ORDER
    from ebbtide.changelog._order import order_struct as order_struct
    from ebbtide.changelog._rows import ADDS as ADDS
    from ebbtide.changelog._rows import CHANGELOG_COLUMNS as CHANGELOG_COLUMNS
    from ebbtide.changelog._rows import ORIGIN as ORIGIN
    from ebbtide.changelog._rows import TRUNCATE as TRUNCATE
    from ebbtide.changelog._rows import RowKind as RowKind
    from ebbtide.changelog._rows import changelog_schema as changelog_schema
    from ebbtide.changelog._sequences import LOG_POSITIONS as LOG_POSITIONS
    from ebbtide.changelog._sequences import PLACE as PLACE
    from ebbtide.changelog._sequences import STEP as STEP
    from ebbtide.changelog._sequences import UNKNOWN as UNKNOWN
    from ebbtide.changelog._sequences import is_log_position as is_log_position
    from ebbtide.changelog._sequences import key_changes_type as key_changes_type
    from ebbtide.changelog._sequences import rank_sequences as rank_sequences
    from ebbtide.changelog._sequences import sequence_type as sequence_type
    from ebbtide.changelog._sequences import stored_sequence_type as stored_sequence_type
    from ebbtide.changelog._sequences import without_op as without_op
else:
    __getattr__, __all__ = names_of(__name__)
