"""`python -m ebbtide.cli`, where the script `ebbtide` is not at hand."""

from ebbtide.cli.main import main

main(prog_name="ebbtide")
