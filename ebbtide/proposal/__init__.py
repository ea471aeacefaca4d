"""From a sample of real records to a spec: what they look like, their columns and types, their key and order.

`Sample.take` takes records, `Proposal.of` proposes a spec's fields, `Trial.of` tries the spec on the sample, `ProposedFiles` writes it
with a test. `ProposedTables` write the spec of several pipelines.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.proposal._files import ProposedFiles as ProposedFiles
    from ebbtide.proposal._files import Trial as Trial
    from ebbtide.proposal._sample import Sample as Sample
    from ebbtide.proposal._several import ProposedTables as ProposedTables
    from ebbtide.proposal._spec import Proposal as Proposal
else:
    __getattr__, __all__ = names_of(__name__)
