"""Models that look to an adapter like published ones: same class names, attributes and calls.

They stand in where the authors' code is not on the path; with it there, the tests take that.
"""
