"""A run that goes on, whose requests to a store are counted by what it was doing: the start, looks, steps, heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from s3_server import Proxy, Served, longest_chain

import ebbtide
from ebbtide.runtime._following import Following
from ebbtide.spec import Pipeline


@dataclass(frozen=True)
class Part:
    """What a run asked of a store while it did one thing.

    Args:
        name: The thing.
        served: The requests.
    """

    name: str
    served: tuple[Served, ...]

    def count(self, *methods: str) -> int:
        """Return the number of requests, of some methods if any are given."""
        return sum(not methods or each.method in methods for each in self.served)

    @property
    def in_a_row(self) -> int:
        """The most requests that follow one another."""
        return longest_chain(self.served)


@dataclass
class Followed(threading.Event):
    """The stop of a run that goes on: it waits between two looks, and does there what comes next, without waiting.

    Args:
        proxy: Counts the requests.
        script: Yields the name of what the run does next; what the script does before that comes in between.
    """

    proxy: Proxy
    script: Callable[[], Iterator[str]]
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin."""
        super().__init__()
        self._names = self.script()
        self._name = next(self._names)

    def wait(self, timeout: float | None = None) -> bool:
        """Note what was asked since the last call, and go on in the script; its end stops the run."""
        name, served = self._name, tuple(self.proxy.served)
        self.parts.append(Part(name, served))
        self.proxy.served.clear()
        following = next(self._names, None)
        if following is None:
            self.set()
            return True
        self._name = following
        return self.is_set()


def follow(proxy: Proxy, spec: Pipeline, root: str, script: Callable[[], Iterator[str]], **options: Any) -> list[Part]:
    """Run a pipeline that goes on as a script says; return what it asked for.

    Args:
        proxy: The store.
        spec: The pipeline.
        root: Location of its tables.
        script: See `Followed`.
        options: Of `ebbtide.runtime._driver.run`.
    """
    stop = Followed(proxy, script)
    proxy.served.clear()
    # The least interval: each turn of the run looks at the source.
    ebbtide.run(ebbtide.InProcess(), spec, root, stop=stop, follow=Following(interval_ms=1), **options)
    return stop.parts
