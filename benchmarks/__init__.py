"""One script a claim; `results/` holds what each printed, with its command and machine."""
