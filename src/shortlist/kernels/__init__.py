"""Compiled inner loops (numba). They know arrays and nothing else; every one has a slow twin in the tests."""
