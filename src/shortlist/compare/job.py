"""What a comparison tells the process of a recipe's row to do."""

from __future__ import annotations

from typing import Any

import msgspec

# In the job's folder.
MODEL, CHECKPOINTS = "model", "checkpoints"


class Job(msgspec.Struct):
    """What to do; `checksum` is what the data has to have."""

    source: str
    reading: dict[str, Any]
    checksum: str
    recipe: str
    ensemble: int
    options: dict[str, Any]
    seed: int
    threads: int
    places: int
    latency_texts: int
    ways: list[str]
    folder: str
    resume: bool
