"""What Dagster starts by itself below a sink: only what blocking checks have passed."""

import dagster as dg
from clusters.spark_support import plain_spec

from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.dagster import pipeline_definitions
from ebbtide.dagster.components import DEFAULT_RESOURCES

BLOCKING = [check.name for check in CHECKS if check.blocking]
RIGHT = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


@dg.asset(deps=["plain"], automation_condition=RIGHT)
def report():
    """Read the sink, were it right."""


@dg.asset(name="plain")
def sink():
    """Stand in for a run of the pipeline."""


class Watched:
    """A location with a pipeline and an asset that reads its sink, as Dagster's daemon looks at it."""

    def __init__(self, tmp_path, instance):
        definitions = pipeline_definitions(plain_spec(tmp_path))
        below = dg.Definitions(assets=[report], resources=DEFAULT_RESOURCES)
        self.location = dg.Definitions.merge(definitions, below)
        self.instance = instance
        self.cursor = None

    def materialize(self):
        dg.materialize([sink], instance=self.instance)

    def judge(self, **verdicts):
        @dg.multi_asset_check(specs=[dg.AssetCheckSpec(name, asset="plain", blocking=True) for name in BLOCKING])
        def checks():
            for name in BLOCKING:
                yield dg.AssetCheckResult(asset_key="plain", check_name=name, passed=verdicts.get(name, True))

        which = dg.AssetSelection.all_asset_checks()
        dg.materialize([sink, checks], instance=self.instance, selection=which, raise_on_error=False)

    @property
    def is_report_started(self):
        report_alone = dg.AssetSelection.assets("report")
        evaluated = dg.evaluate_automation_conditions(self.location, self.instance, report_alone, cursor=self.cursor)
        self.cursor = evaluated.cursor
        return evaluated.get_num_requested(dg.AssetKey("report")) == 1


def test_asset_below_a_sink_starts_once_all_blocking_checks_of_the_newest_rows_have_passed(tmp_path):
    assert len(BLOCKING) == 2
    with dg.DagsterInstance.ephemeral() as instance:
        watched = Watched(tmp_path, instance)
        assert not watched.is_report_started
        watched.materialize()
        assert not watched.is_report_started, "nothing is judged yet"
        watched.judge()
        assert watched.is_report_started
        assert not watched.is_report_started, "once is enough"
        watched.materialize()
        assert not watched.is_report_started, "what was judged is older"
        watched.judge(complete=False)
        assert not watched.is_report_started
        watched.judge()
        assert watched.is_report_started, "it was repaired, and judged again"
