"""Trained models: predicting, explaining, saving and loading."""

from shortlist.model.folder import load
from shortlist.model.model import Model, Tail
from shortlist.model.prediction import Prediction, WordEffect

__all__ = ["Model", "Prediction", "Tail", "WordEffect", "load"]
