"""The checks of a pipeline's tables, in Great Expectations. Needs `pip install 'ebbtide[quality]'`.

`ebbtide.quality.checks` names them and needs nothing; the other modules need Great Expectations.
"""
