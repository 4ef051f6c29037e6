"""Short-text extreme classification: a short text in, the best few of millions of labels out."""
__version__ = "0.1.0"
