"""Recipes: every system is an encoder, phases of training and defaults, as data."""

from shortlist.recipes.options import Option, Options, Published
from shortlist.recipes.recipe import CustomEncoder, Recipe, get_recipe, list_recipes, register

__all__ = ["CustomEncoder", "Option", "Options", "Published", "Recipe", "get_recipe", "list_recipes", "register"]
