"""The command line, with a driver that leaves all work to the executors: `python command_on_cluster.py run SPEC ...`."""

import sys

from ebbtide.cli import main
from ebbtide.runtime import _decide as decide
from ebbtide.sources import _file_source as file_source

decide.ROWS_IN_DRIVER = 1
file_source.BYTES_IN_DRIVER = 0
main(sys.argv[1:])
