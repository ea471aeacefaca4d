"""FLIP-544's `SinkUpsertMaterializer`, one row at a time, over state.

`OrderedMultiset` holds the rows of an upsert key in the order of their arrival; `Strategy` chooses its form. Tests compare
the operators over whole batches with this reference.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.materializer._element import Row as Row
    from ebbtide.materializer._multiset import OrderedMultiset as OrderedMultiset
    from ebbtide.materializer._multiset import Strategy as Strategy
    from ebbtide.materializer._operator import SinkUpsertMaterializer as SinkUpsertMaterializer
else:
    __getattr__, __all__ = names_of(__name__)
