"""Plays cases in the format of the golden ones: a script in, each operation with its result out.

`replay_ttl` plays operations on states, `replay_materializer` changelogs; each case comes back as a `PlayedCase`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.replay._cases import PlayedCase as PlayedCase
    from ebbtide.replay._materializer import replay_materializer as replay_materializer
    from ebbtide.replay._ttl import replay_ttl as replay_ttl
else:
    __getattr__, __all__ = names_of(__name__)
