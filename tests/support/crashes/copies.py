"""Parts of a pipeline put back from copies that were made at different moments: of one that ran on, and of one that a copy went on as."""

from __future__ import annotations

import shutil

from crashes.ages import WITH_CHANGELOG, AgedPipeline, lines_of_run
from local.local_pipeline import LocalPipeline
from local.local_run import SPARK, die_behind_a_decision

EARLY, DECIDED, LATE, OTHER = 2, 3, 4, 5
"""After two steps; behind the decision of the third, which no other table has; after the fourth; the third of a copy of `EARLY`, of two files."""
MOMENTS = (EARLY, DECIDED, LATE, OTHER)


class CopiedPipeline(AgedPipeline):
    """A pipeline with copies of its parts at each of `MOMENTS`.

    Args:
        pipeline: Without a run.
    """

    def __init__(self, pipeline: LocalPipeline) -> None:
        super().__init__(pipeline, lambda number: pipeline.put(*lines_of_run(number)), (EARLY,))
        pipeline.put(*lines_of_run(3))
        die_behind_a_decision(SPARK, pipeline.root, pipeline.spec)
        self._keep(DECIDED)
        pipeline.run()
        self._note()
        pipeline.put(*lines_of_run(4))
        pipeline.run()
        self._keep(LATE)
        self._note()
        self.right = self.shown()
        self.mix(dict.fromkeys(WITH_CHANGELOG, EARLY))
        other = LocalPipeline(pipeline.source.parent, **pipeline.fields)
        other.spec = other.with_fields(source={"max_files_per_step": 2})
        other.run()
        assert self.shown() == self.right
        self._keep(OTHER)

    def _keep(self, moment: int) -> None:
        shutil.copytree(self.pipeline.home, self._copies / str(moment))
