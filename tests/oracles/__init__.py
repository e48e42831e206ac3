"""Slow, independent computations that tests compare the library with."""
