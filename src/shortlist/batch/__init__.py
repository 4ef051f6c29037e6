"""Batch prediction: files in, files out, in constant memory."""
