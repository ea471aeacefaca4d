"""Formats decode bytes to changes."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.formats._avro import with_schemas as with_schemas
    from ebbtide.formats._columns import Coding as Coding
    from ebbtide.formats._connect import key_row as key_row
    from ebbtide.formats._debezium import DebeziumDecoder as DebeziumDecoder
    from ebbtide.formats._debezium_rules import DebeziumEvent as DebeziumEvent
    from ebbtide.formats._decoding import Decoding as Decoding
    from ebbtide.formats._format import BadRecordError as BadRecordError
    from ebbtide.formats._format import DecodedChange as DecodedChange
    from ebbtide.formats._format import Format as Format
    from ebbtide.formats._inference import agreed as agreed
    from ebbtide.formats._inference import type_of_value as type_of_value
    from ebbtide.formats._mapped import MappedDecoder as MappedDecoder
    from ebbtide.formats._parsing import parse_exactly as parse_exactly
    from ebbtide.formats._plain import PlainDecoder as PlainDecoder
    from ebbtide.formats._positions import PositionField as PositionField
    from ebbtide.formats._positions import PositionType as PositionType
    from ebbtide.formats._record_map import FieldPath as FieldPath
    from ebbtide.formats._record_map import RecordMap as RecordMap
    from ebbtide.formats._records import PLACED_RECORDS as PLACED_RECORDS
    from ebbtide.formats._records import RECORDS as RECORDS
    from ebbtide.formats._records import other_keys as other_keys
    from ebbtide.formats._records import stored_form as stored_form
    from ebbtide.formats._settings import StagedKind as StagedKind
    from ebbtide.formats._tools import TOOLS as TOOLS
    from ebbtide.formats._unavailable import Unavailable as Unavailable
else:
    __getattr__, __all__ = names_of(__name__)
