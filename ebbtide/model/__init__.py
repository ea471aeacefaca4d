"""The pure model: no Spark, no files, no clock but the one passed in."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.model._changelog import ORDER as ORDER
    from ebbtide.model._changelog import TRUNCATE as TRUNCATE
    from ebbtide.model._changelog import RowKind as RowKind
    from ebbtide.model._codes import Codes as Codes
    from ebbtide.model._codes import Mask as Mask
    from ebbtide.model._codes import row_codes as row_codes
    from ebbtide.model._columns import columns_named as columns_named
    from ebbtide.model._decision import Action as Action
    from ebbtide.model._decision import Append as Append
    from ebbtide.model._decision import Decision as Decision
    from ebbtide.model._decision import Restore as Restore
    from ebbtide.model._durations import to_ms as to_ms
    from ebbtide.model._entries import DELETE as DELETE
    from ebbtide.model._entries import LONG_MIN as LONG_MIN
    from ebbtide.model._entries import Step as Step
    from ebbtide.model._entries import entry_table as entry_table
    from ebbtide.model._entries import equals as equals
    from ebbtide.model._entries import flags as flags
    from ebbtide.model._entries import ints as ints
    from ebbtide.model._entries import is_set as is_set
    from ebbtide.model._quoting import quoted as quoted
    from ebbtide.model._schema_change import SchemaChange as SchemaChange
    from ebbtide.model._step import BatchSummary as BatchSummary
    from ebbtide.model._ttl import LONG_MAX as LONG_MAX
    from ebbtide.model._ttl import StateTtlConfig as StateTtlConfig
else:
    __getattr__, __all__ = names_of(__name__)
