"""What Dagster loads: composition only."""

from pathlib import Path

import dagster as dg

from assets.failed_runs import failed_runs
from assets.revenue import customer_revenue, customer_revenue_job
from ebbtide.dagster.metadata import on_engine
from resources.profiles import resources

shop_job = dg.define_asset_job(
    "shop",
    dg.AssetSelection.groups("shop"),
    description="Bring all sinks of the shop up to date, and check them, in one run.",
)
demo_job = dg.define_asset_job(
    "demo",
    dg.AssetSelection.groups("shop", "warehouse"),
    description="The same, with the stock of its warehouses: the run of `make demo`.",
)


@dg.definitions
def defs() -> dg.Definitions:
    """Return everything in this code location."""
    here = Path(__file__).parent
    merged = dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=here),
        dg.Definitions(
            assets=[customer_revenue],
            jobs=[customer_revenue_job, shop_job, demo_job],
            sensors=[failed_runs],
            executor=dg.in_process_executor,
        ),
    )
    return on_engine(merged, resources().engine)
