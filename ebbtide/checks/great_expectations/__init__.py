"""The checks of a pipeline's tables, in Great Expectations. Needs `pip install 'ebbtide[quality]'`.

`ebbtide.checks.great_expectations.checks` names them and does not load Great Expectations; the other modules do.
"""

from importlib.util import find_spec

from ebbtide.errors import MissingExtraError

if find_spec("great_expectations") is None:
    raise MissingExtraError.of_extra("quality", "Great Expectations")
