"""The heavy layer: one row of weights for each label, and the small block before it."""
