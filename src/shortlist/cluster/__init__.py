"""Training, batch prediction and serving on Ray (extra `ray`)."""
