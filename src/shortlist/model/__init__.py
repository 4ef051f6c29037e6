"""Trained models: what they can do, how they are stored, and the recipes that make them."""

from shortlist.model.base import Model, Prediction
from shortlist.model.registry import list_recipes, load, train

__all__ = ["Model", "Prediction", "list_recipes", "load", "train"]
