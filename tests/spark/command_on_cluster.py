"""The command line, with a driver that leaves all work to the executors: `python command_on_cluster.py run SPEC ...`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from frame.limits import set_limits

from ebbtide.cli import main

set_limits(rows_in_driver=1, file_source_bytes_in_driver=0)
main(sys.argv[1:])
