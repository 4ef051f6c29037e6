"""AttentionXML's network (You et al. 2019): a bidirectional LSTM, then for each label its own attention over the words.

One network is one level of the label tree. The stages `LSTMEncoder` and `AttentionLayer` do the same without torch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.training.networks.layers import Dropout

GATES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class AttentionNetwork(nn.Module):
    """Word ids (batch × words, padding = `n_words`, after the words) to logits of labels, or of clusters of labels.

    n_rows        number of labels or clusters
    hidden_size   of the LSTM, in each direction
    linear_sizes  one or two fully connected layers after the attention
    sparse        each text scores candidates only: just their queries have a gradient
    """

    def __init__(
        self,
        n_words: int,
        n_rows: int,
        embedding_dim: int = 300,
        hidden_size: int = 256,
        linear_sizes: tuple[int, ...] = (256,),
        word_dropout: float = 0.2,
        dropout: float = 0.5,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.padding, n_states = n_words, 2 * hidden_size
        self.words = nn.Embedding(n_words + 1, embedding_dim, padding_idx=n_words, sparse=True)
        self.lstm = nn.LSTM(embedding_dim, hidden_size, batch_first=True, bidirectional=True)
        self.initial = nn.Parameter(torch.zeros(2, 2, hidden_size))  # hidden state or cell × direction
        self.queries = nn.Embedding(n_rows, n_states, sparse=sparse)
        self.hidden = nn.Linear(n_states, linear_sizes[0])
        self.second = nn.Linear(*linear_sizes) if len(linear_sizes) == 2 else None
        self.output = nn.Linear(linear_sizes[-1], 1)
        self.word_dropout, self.dropout = Dropout(word_dropout), Dropout(dropout)
        for matrix in (self.queries.weight, self.output.weight, *(layer.weight for layer in self._layers().values())):
            nn.init.xavier_uniform_(matrix)

    def forward(self, word_ids: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Logits of all rows (batch × rows), or of these rows (batch × candidates)."""
        states = self.dropout(self.states(word_ids))
        if candidates is None:
            attention = states @ self.queries.weight.T
        else:
            attention = states @ self.queries(candidates).transpose(1, 2)
        is_word = word_ids != self.padding
        is_word[:, 0] = True  # a text without words is one word
        attention = attention.masked_fill(~is_word[..., None], -torch.inf).softmax(dim=1)
        # The first layer before the weighted sum: the same result, and much less work.
        first = states @ self.hidden.weight.T
        hidden = torch.relu(attention.transpose(1, 2) @ first + self.hidden.bias)
        if self.second is not None:
            hidden = torch.relu(self.second(hidden))
        logits: Tensor = self.output(hidden)
        return logits.squeeze(-1)

    def states(self, word_ids: Tensor) -> Tensor:
        """The hidden states of both directions at every word, batch × words × states."""
        vectors = self.word_dropout(self.words(word_ids))
        lengths = (word_ids != self.padding).sum(dim=1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, cell = (start[:, None].expand(-1, len(word_ids), -1).contiguous() for start in self.initial)
        states, _ = self.lstm(packed, (hidden, cell))
        return nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=word_ids.shape[1])[0]

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """Arrays of the encoder ("encoder.…") and of the attention layer ("rows.…")."""
        inputs, states, biases, more_biases = self._gates()
        tensors = {
            "encoder.words": self.words.weight[:-1],
            "encoder.inputs": inputs.transpose(1, 2),
            "encoder.states": states.transpose(1, 2),
            "encoder.biases": biases + more_biases,
            "encoder.initial": self.initial.transpose(0, 1),
            "rows.queries": self.queries.weight,
            "rows.output": self.output.weight[0],
            "rows.output_bias": self.output.bias,
        }
        for name, layer in self._layers().items():
            tensors |= {f"rows.{name}": layer.weight.T, f"rows.{name}_biases": layer.bias}
        return {name: tensor.float().contiguous().cpu().numpy().copy() for name, tensor in tensors.items()}

    @torch.no_grad()
    def start_from(self, arrays: Arrays) -> None:
        """Continue from the network of the level above, which has other queries."""
        given = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.words.weight[:-1] = given["encoder.words"]
        for direction, suffix in enumerate(("", "_reverse")):
            of_direction = [given[f"encoder.{name}"][direction].T for name in ("inputs", "states")]
            of_direction += [given["encoder.biases"][direction], torch.zeros(4 * self.lstm.hidden_size)]
            for name, values in zip(GATES, of_direction, strict=True):
                getattr(self.lstm, f"{name}_l0{suffix}").copy_(values)
        self.initial.copy_(given["encoder.initial"].transpose(0, 1))
        for name, layer in self._layers().items():
            layer.weight.copy_(given[f"rows.{name}"].T)
            layer.bias.copy_(given[f"rows.{name}_biases"])
        self.output.weight.copy_(given["rows.output"][None])
        self.output.bias.copy_(given["rows.output_bias"])

    def _layers(self) -> dict[str, nn.Linear]:
        return {"hidden": self.hidden, **({} if self.second is None else {"second": self.second})}

    def _gates(self) -> list[Tensor]:
        """Weights and biases of the gates, each with one slice per direction."""
        return [torch.stack([getattr(self.lstm, f"{name}_l0{side}") for side in ("", "_reverse")]) for name in GATES]
