"""Sources: from stored or streamed bytes to raw records.

A `Source` finds new records (`Discovery`), plans batches of them (`BatchPlanner`) and reads these (`SourceBatch`, whose `Records`
are raw). `FileSource` and `KafkaSource` are built in; a query of Spark has `HandedRows`, which `MicroBatches` hand over. A project's source derives from `PositionedSource`, is created with
`SourceSettings` and returns its offsets as `Available`. Its position is a `Span`: start and end of each partition; files are
`Part`s. `Backlog` measures the records that wait.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sources._available import Available as Available
    from ebbtide.sources._file_source import FileSource as FileSource
    from ebbtide.sources._kafka.client import Client as Client
    from ebbtide.sources._kafka.registry import Registry as Registry
    from ebbtide.sources._kafka.source import KafkaSource as KafkaSource
    from ebbtide.sources._listing import PATTERNS as PATTERNS
    from ebbtide.sources._positioned import PositionedSource as PositionedSource
    from ebbtide.sources._positioned import SourceSettings as SourceSettings
    from ebbtide.sources._rows_of_spark import HandedRows as HandedRows
    from ebbtide.sources._rows_of_spark import MicroBatches as MicroBatches
    from ebbtide.sources._source import Backlog as Backlog
    from ebbtide.sources._source import BatchPlanner as BatchPlanner
    from ebbtide.sources._source import Discovery as Discovery
    from ebbtide.sources._source import Part as Part
    from ebbtide.sources._source import Records as Records
    from ebbtide.sources._source import Source as Source
    from ebbtide.sources._source import SourceBatch as SourceBatch
    from ebbtide.sources._source import Work as Work
    from ebbtide.sources._span import Span as Span
else:
    __getattr__, __all__ = names_of(__name__)
