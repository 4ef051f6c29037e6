"""Trained models: predicting, explaining, saving and loading."""

from shortlist.model.folder import load
from shortlist.model.model import Model, Prediction, WordEffect

__all__ = ["Model", "Prediction", "WordEffect", "load"]
