"""Executors: what runs the work of steps and operations.

`Executor` is the contract, `InProcess` runs everything in this process; Spark's is in `ebbtide.sessions`. `EngineKind` has the engines that a
spec may name.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.executors._executor import EngineKind as EngineKind
    from ebbtide.executors._executor import Executor as Executor
    from ebbtide.executors._in_process import InProcess as InProcess
else:
    __getattr__, __all__ = names_of(__name__)
