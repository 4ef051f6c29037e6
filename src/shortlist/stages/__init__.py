"""The stages of a saved model, without torch: encoder, candidates, classifier, re-ranker, calibration."""
