"""Columns and tables of Arrow as numpy arrays, and computations over them. No files, no clock; only Arrow and numpy.

`ints`, `flags`, `is_set` and `equals` read a column as an array of `Ints` or a `Mask`; `entry_table`, `with_column` and `only` build
tables. `row_codes` numbers rows so that equal rows have equal numbers (`Codes`), and `key_hashes` hashes them alike on every machine;
`equality_key` defines equality of single rows, `json_text` writes single values for people. `CompiledLoop` is a loop over arrays as machine code.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.columns._codes import Codes as Codes
    from ebbtide.columns._codes import Ints as Ints
    from ebbtide.columns._codes import Mask as Mask
    from ebbtide.columns._codes import count_codes as count_codes
    from ebbtide.columns._codes import row_codes as row_codes
    from ebbtide.columns._compiled import CompiledLoop as CompiledLoop
    from ebbtide.columns._equality import equality_key as equality_key
    from ebbtide.columns._equality import map_key as map_key
    from ebbtide.columns._hashing import Hashes as Hashes
    from ebbtide.columns._hashing import key_hashes as key_hashes
    from ebbtide.columns._json import json_text as json_text
    from ebbtide.columns._longs import Long as Long
    from ebbtide.columns._quoting import quoted as quoted
    from ebbtide.columns._values import columns_named as columns_named
    from ebbtide.columns._values import entry_table as entry_table
    from ebbtide.columns._values import equals as equals
    from ebbtide.columns._values import flags as flags
    from ebbtide.columns._values import inner_fields as inner_fields
    from ebbtide.columns._values import ints as ints
    from ebbtide.columns._values import is_set as is_set
    from ebbtide.columns._values import only as only
    from ebbtide.columns._values import with_column as with_column
else:
    __getattr__, __all__ = names_of(__name__)
