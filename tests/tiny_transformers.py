"""A tokenizer and a random transformer of a few thousand parameters, as folders in Hugging Face's format."""

from __future__ import annotations

from pathlib import Path

import pytest

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def word_piece_tokenizer(texts, n_pieces=300):
    """A WordPiece tokenizer trained on these texts, with BERT's special pieces around a text."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra transformers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=n_pieces, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def save_tokenizer(folder: Path, tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def tiny_transformer(folder: Path, texts, kind: str = "Bert", **sizes) -> Path:
    """A random transformer of two layers with a tokenizer for these texts, as `save_pretrained` writes them."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    import torch

    tokenizer = word_piece_tokenizer(texts)
    save_tokenizer(folder, tokenizer)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, **sizes}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=64, pad_token_id=0, **sizes
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return folder
