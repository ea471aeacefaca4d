"""Reports of a run's polls of its source for observers: the discovery, and facts known without reading a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ebbtide.runtime._reading import SourceSteps
from ebbtide.runtime._step import Stepper
from ebbtide.sources import Discovery


@dataclass(frozen=True)
class Look:
    """A look of a run, which holds the lease, at its source.

    Args:
        steps: Makes the steps.
        found: What there was to read.
        parts_before: Parts of the source that this turn had read before.
    """

    steps: SourceSteps
    found: Discovery
    parts_before: int

    @property
    def stepper(self) -> Stepper:
        """The stepper, which knows the last step and the newest version of the state."""
        return self.steps.stepper

    @property
    def waiting(self) -> Discovery:
        """The input that was found, without the parts that steps have read since: they read them in order."""
        n_read = self.steps.parts_read - self.parts_before
        return replace(self.found, parts=self.found.parts[n_read:])
