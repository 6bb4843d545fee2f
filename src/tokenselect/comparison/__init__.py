"""Comparison of selection methods at equal cost: cells that train and test, tables, figures."""
