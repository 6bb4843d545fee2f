"""`python -m tokenselect`."""

from tokenselect.cli.main import main

main()
