"""A trained model at work: over HTTP, or on whole files."""
