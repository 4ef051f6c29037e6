"""Features in, candidate labels out."""
