"""The command line: `ebbtide --help` lists its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable, 3 a source without a file that matches.
"""

from __future__ import annotations

import click

from ebbtide.cli.inspection import state, status
from ebbtide.cli.quarantine import quarantine
from ebbtide.cli.replaying import replay
from ebbtide.cli.running import refresh, run
from ebbtide.cli.sql_gateway import sql_gateway
from ebbtide.cli.upkeep import acknowledge, adopt, maintenance_command, migrate, repair, rewind
from ebbtide.maintenance.jobs import JOBS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ebbtide")
def main() -> None:
    """Upsert sinks and expiring state for Spark.

    SPEC is a defs.yaml, the folder that holds one, or a folder of such folders.

    Exit codes: 0 done, also if nothing is new; 1 failed; 2 wrong usage or spec; 3 no file in a source's folder matches.
    """


_maintenance = [maintenance_command(job) for job in JOBS]
_keeping = (*_maintenance, adopt, repair, acknowledge, rewind, migrate, quarantine)
for _command in (run, refresh, status, state, *_keeping, replay, sql_gateway):
    main.add_command(_command)
