"""From a sample of real records to a spec: what they look like, their columns and types, their key and order."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.proposal._files import SEVERAL as SEVERAL
    from ebbtide.proposal._files import Trial as Trial
    from ebbtide.proposal._files import lines_of as lines_of
    from ebbtide.proposal._files import refuse_existing as refuse_existing
    from ebbtide.proposal._files import try_spec as try_spec
    from ebbtide.proposal._files import write_spec as write_spec
    from ebbtide.proposal._files import write_test as write_test
    from ebbtide.proposal._sample import Sample as Sample
    from ebbtide.proposal._sample import take_sample as take_sample
    from ebbtide.proposal._several import own_fields as own_fields
    from ebbtide.proposal._several import several_attributes as several_attributes
    from ebbtide.proposal._spec import Proposal as Proposal
    from ebbtide.proposal._spec import propose as propose
else:
    __getattr__, __all__ = names_of(__name__)
