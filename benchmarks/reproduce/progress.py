"""How long a reproduction takes: a guess before it starts, which finished systems correct."""

from __future__ import annotations

from typing import Any

from shortlist.cli.train import option_value
from shortlist.compare.plan import PEERS
from shortlist.compare.plan import plan as plan_entries
from shortlist.recipes import get_recipe
from shortlist.recipes.options import resolve
from shortlist.report.plots import duration

# On 2 cores: seconds before and after the training of any system, and seconds per 10,000 texts and epoch by the start
# of a recipe's name. The second number is for each 1,000 labels, where every text meets all of them.
STARTING = 6.0
SECONDS = {
    "inceptionxml-deepxml": (5.0, 0.2),
    "inceptionxml+": (4.5, 1.4),
    "inceptionxml": (2.5, 0.6),
    "xml-cnn": (10.0, 1.3),
    "deepxml-cnn": (10.0, 0.3),
    "attentionxml": (17.0, 5.0),
    "lightxml": (600.0, 0.0),
    "deepxml-transformer": (600.0, 0.0),
    "mach": (0.4, 0.1),
}
OTHERS, PEER_SECONDS = (0.5, 0.1), 5.0


class Progress:
    """How many systems are done, and about how long the others will take."""

    def __init__(self, names: list[str], n_texts: int, n_labels: int) -> None:
        self._guess = {name: guess_seconds(name, n_texts, n_labels) for name in names}

    def __str__(self) -> str:
        n, total = len(self._guess), duration(sum(self._guess.values()))
        return f"{n} systems; about {total} on 2 idle cores, if none of them is stored"

    def after(self, summary: dict[str, Any]) -> str:
        """The same after some systems: those that are done tell how far off the guesses are."""
        took = {e["name"]: e["train_seconds"] for e in summary["entries"] if e["train_seconds"] is not None}
        seen = {e["name"] for e in summary["entries"]}
        guessed = sum(seconds for name, seconds in self._guess.items() if name in took)
        spent = sum(seconds + STARTING for name, seconds in took.items() if name in self._guess)
        factor = spent / guessed if guessed else 1.0
        left = factor * sum(seconds for name, seconds in self._guess.items() if name not in seen)
        n_done = sum(name in seen for name in self._guess)
        return f"{n_done} of {len(self._guess)} systems; about {duration(left)} left"


def guess_seconds(name: str, n_texts: int, n_labels: int) -> float:
    """Seconds for one entry: its epochs of all phases, members and repetitions."""
    if name in PEERS:
        return PEER_SECONDS * (1 + n_texts / 10_000)
    (planned,) = plan_entries(name, "none", option_value)
    recipe = get_recipe(planned.recipe)
    values = resolve(recipe.name, recipe.options, planned.options, n_texts, n_labels).to_dict()
    epochs = [values.get("n_epochs", 0)] if values.get("classifier", "rows") == "rows" else []
    epochs += [values.get("n_surrogate_epochs", 0)] if values.get("surrogate", "none") != "none" else []
    epochs += [values.get("n_reranker_epochs", 0)] if values.get("reranker") == "network" else []
    start = next((start for start in SECONDS if recipe.name.startswith(start)), "")
    once, per_thousand_labels = SECONDS.get(start, OTHERS)
    seconds = once + per_thousand_labels * min(n_labels, 65_536) / 1000
    repeated = planned.ensemble * values.get("n_repetitions", 1)
    return STARTING + repeated * sum(epochs) * seconds * n_texts / 10_000
