"""The `tokenselect` command: `main.py` and one file a subcommand."""
