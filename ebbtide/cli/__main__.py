"""`python -m ebbtide.cli`, for environments without the script `ebbtide`."""

from ebbtide.cli.main import main

main(prog_name="ebbtide")
