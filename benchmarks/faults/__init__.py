"""Faults on purpose: damaged files, hostile settings and requests, commands killed at any moment.

`python -m benchmarks.faults` runs them all and writes `docs/reliability.md`; `tests/faults` runs a
few of each. Everything follows from a seed, and a failure names its case, so that it can be run
again alone.
"""
