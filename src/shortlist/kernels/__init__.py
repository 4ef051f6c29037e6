"""Inner loops in C. They know only arrays, and each has a slow twin in the tests."""
