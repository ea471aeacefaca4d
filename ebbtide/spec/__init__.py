"""The pipeline spec: what a user writes."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.spec._bounded_yaml import read_yaml as read_yaml
    from ebbtide.spec._kafka import KafkaSource as KafkaSource
    from ebbtide.spec._names import NAME as NAME
    from ebbtide.spec._parts import DeltaSink as DeltaSink
    from ebbtide.spec._parts import MappedFormat as MappedFormat
    from ebbtide.spec._pipeline import Pipeline as Pipeline
    from ebbtide.spec._positioned import PositionedPart as PositionedPart
    from ebbtide.spec._positioned import SourceStart as SourceStart
    from ebbtide.spec._reading import Project as Project
    from ebbtide.spec._reading import SpecFile as SpecFile
    from ebbtide.spec._reading import field_path as field_path
    from ebbtide.spec._row_functions import UnfitFunctionError as UnfitFunctionError
    from ebbtide.spec._row_functions import UserFunction as UserFunction
    from ebbtide.spec._several import UpsertPipelines as UpsertPipelines
    from ebbtide.spec._stateful import StatefulPipeline as StatefulPipeline
    from ebbtide.spec._transform import Transform as Transform
    from ebbtide.spec._upsert import UpsertPipeline as UpsertPipeline
    from ebbtide.spec._view import MaterializedView as MaterializedView
else:
    __getattr__, __all__ = names_of(__name__)
