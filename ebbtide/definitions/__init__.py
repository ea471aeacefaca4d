"""Definitions: the specs in a project's `defs.yaml` files, by their location.

`load` reads one, `load_all` those at several locations. A file may hold several: `all_several`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.definitions._load import all_several as all_several
    from ebbtide.definitions._load import load as load
    from ebbtide.definitions._load import load_all as load_all
    from ebbtide.definitions._load import refuse_shared_names as refuse_shared_names
else:
    __getattr__, __all__ = names_of(__name__)
