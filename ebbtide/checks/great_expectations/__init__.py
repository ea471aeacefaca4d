"""The checks of a pipeline's tables, in Great Expectations. Needs `pip install 'ebbtide[quality]'`.

`checks` names them, `verdict` and `wording` say what they found: these do not load Great Expectations; the other modules do.
"""

from importlib.util import find_spec

from ebbtide.errors import MissingExtraError

if find_spec("great_expectations") is None:
    raise MissingExtraError.of_extra("quality", "Great Expectations")
