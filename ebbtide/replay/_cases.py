"""The common part of all kinds of cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError
from ebbtide.keyed_state import Store
from ebbtide.stores import HeapStore

Case = dict[str, Any]


@contextmanager
def playing(case: Any, needs: str) -> Iterator[None]:
    """Turn what is wrong with a case into a ConfigError that names it.

    Args:
        case: The case.
        needs: What a case must have.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        name = case.get("name") if isinstance(case, dict) else case
        raise ConfigError.of(
            f"The case {name!r} cannot be played: {type(error).__name__}: {error}.",
            allowed=f"an object with {needs}, as in docs/reference/replay.md",
        ) from error


def open_store(name: str, path: Path) -> Store:
    """Return an empty store, `heap` or `rocksdb`; one in files takes the folder `path`."""
    if name == "heap":
        return HeapStore()
    from ebbtide.stores import RocksDbStore

    return RocksDbStore(path)


@dataclass(frozen=True)
class PlayedCase:
    """A case that was played.

    Args:
        case: The case with its `output`.
        is_expected: Its `expected` applies to the strategy that played it.
    """

    case: Case
    is_expected: bool = True

    @property
    def output(self) -> list[Case]:
        """The results of its operations."""
        output: list[Case] = self.case["output"]
        return output

    @property
    def differs(self) -> bool:
        """Return whether the output is another one than expected; what an error says does not count."""
        if not self.is_expected or "expected" not in self.case:
            return False
        output = list(map(_without_message, self.output))
        expected = list(map(_without_message, self.case["expected"]))
        return output != expected


def _without_message(result: Case) -> Case:
    if "error" not in result:
        return result
    return {"i": result["i"], "error": True}
