"""Runs XR-Transformer (PECOS) as `run_peer.py` runs the other tools: `python xr_transformer.py NAME JOB.json`.

Its options are `weights`, a local folder of Hugging Face weights (nothing is downloaded), and `num_train_epochs`, per
level of its label tree. It reads the words of a text separated by spaces, and the sparse rows of the linear tools.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from shortlist.compare.peers.run_peer import CANNOT_RUN, Data, Ranked, Tool, main, row_pairs
else:  # the peers' Python does not have Shortlist, but this folder is on its path
    from run_peer import CANNOT_RUN, Data, Tool, main, row_pairs

MAX_TOKENS = 128  # PECOS's default; it pads every text to this length


@dataclass
class Inputs:
    """Texts, and the sparse row of each."""

    texts: list[str]
    rows: Any

    def __getitem__(self, part: slice) -> Inputs:
        return Inputs(self.texts[part], self.rows[part])


class XRTransformer(Tool):
    def prepare(self, data: Data) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        weights = Path(self.options["weights"])
        if not (weights / "config.json").is_file():
            give_up(f"{weights} is no folder of Hugging Face weights: it has no config.json")
        try:
            import pecos.xmc.xtransformer.model  # noqa: F401
        except ImportError as error:
            give_up(f"PECOS cannot use the installed transformers ({error}); `make peers` installs a version that fits")
        self.features, self.texts = data.rows("train"), data.lines("train")

    def train(self, data: Data) -> None:
        import torch
        from pecos.xmc.xtransformer.model import XTransformer
        from pecos.xmc.xtransformer.module import MLProblemWithText
        from transformers import AutoTokenizer

        torch.set_num_threads(self.threads)
        random.seed(self.seed)
        np.random.seed(self.seed)  # noqa: NPY002 - PECOS draws from it
        torch.manual_seed(self.seed)
        training = XTransformer.TrainParams.from_dict({}, recursive=True)
        training.matcher_params_chain.model_shortcut = self.options["weights"]
        training.matcher_params_chain.batch_gen_workers = self.threads
        if "num_train_epochs" in self.options:
            self.settings = {"num_train_epochs": int(self.options["num_train_epochs"])}
            training.matcher_params_chain.num_train_epochs = self.settings["num_train_epochs"]
        prediction = XTransformer.PredParams.from_dict({}, recursive=True)
        # Padding beyond the longest text changes nothing but the time.
        tokens = AutoTokenizer.from_pretrained(self.options["weights"])(self.texts)["input_ids"]
        prediction.matcher_params_chain.truncate_length = min(max(map(len, tokens)), MAX_TOKENS)
        problem = MLProblemWithText(self.texts, data.label_matrix(), X_feat=self.features)
        self.model = XTransformer.train(problem, train_params=training, pred_params=prediction)

    def save(self) -> None:
        from pecos.xmc.xtransformer.model import XTransformer

        self.model.save(self.model_path)
        self.model = XTransformer.load(self.model_path, is_predict_only=True)

    def inputs(self, data: Data, name: str) -> Inputs:
        return Inputs(data.lines(name), data.rows(name))

    def predict(self, inputs: Inputs, k: int, threads: int) -> Ranked:
        import torch

        torch.set_num_threads(threads)
        found = self.model.predict(
            inputs.texts, X_feat=inputs.rows, only_topk=k, threads=threads, batch_gen_workers=0, batch_size=64
        )
        return [sorted(row, key=lambda pair: -pair[1]) for row in row_pairs(found)]

    def predict_text(self, data: Data, k: int) -> Callable[[str], Any]:
        vectorizer = data.vectorizer()
        words = vectorizer.build_analyzer()
        return lambda text: self.predict(Inputs([" ".join(words(text))], vectorizer.transform([text])), k, 1)


def give_up(reason: str) -> None:
    print(reason, flush=True)  # noqa: T201 - the last line of the output says why
    sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], {"xr-transformer": XRTransformer})
