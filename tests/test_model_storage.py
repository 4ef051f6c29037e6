"""How models are stored: 8 bits, arrays that stay in their files, and lines of strings."""

from __future__ import annotations

import mmap
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

import shortlist
from model_files import put_file
from shortlist.errors import ModelError, OptionError
from shortlist.model.format import arrays_of, escaped, lines_of, mapped
from tiny_models import colours, model_over_features


@pytest.fixture(scope="module")
def over_features():
    return model_over_features()


@pytest.fixture(scope="module")
def saved(over_features, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    over_features[0].save(folder)
    return folder


def all_arrays(model):
    """The arrays of all stages of a model, by name."""
    pipeline = model.pipelines[0]
    stages = {name: getattr(pipeline, name) for name in ("encoder", "candidates", "classifier", "reranker")}
    return {
        f"{name}: {key}": array
        for name, stage in stages.items()
        if stage is not None
        for key, array in stage.arrays().items()
    }


class TestBits:
    def test_matrices_in_8_bits_take_a_quarter(self, over_features, tmp_path):
        model, queries = over_features
        for bits in (8, 32):
            model.save(tmp_path / str(bits), bits=bits)
        small, large = (shortlist.load(tmp_path / str(bits)) for bits in (8, 32))
        for name in ("candidates: centres.vectors", "candidates: centres.cells", "classifier: weights"):
            assert all_arrays(small)[name].dtype == np.int8
            assert all_arrays(large)[name].dtype == all_arrays(model)[name].dtype == np.float32
        sizes = [sum(path.stat().st_size for path in (tmp_path / name).iterdir()) for name in ("8", "32")]
        assert 0.22 < sizes[0] / sizes[1] < 0.35
        for one, two in zip(large.rank(queries, 5), model.rank(queries, 5), strict=True):
            assert np.array_equal(one, two)
        ids, scores = small.rank(queries, 1)
        assert (ids == model.rank(queries, 1)[0]).mean() >= 0.97
        np.testing.assert_allclose(scores, model.rank(queries, 1)[1], atol=0.03)

    @pytest.mark.parametrize("bits", [4, 16, "8", None, 8.5])
    def test_other_numbers_of_bits_are_refused_and_nothing_is_written(self, tmp_path, bits):
        with pytest.raises(OptionError, match="it can be 8 or 32"):
            shortlist.train(colours(60), recipe="centroid").save(tmp_path / "model", bits=bits)
        assert not list(tmp_path.iterdir())

    def test_a_model_in_8_bits_stays_in_8_bits(self, over_features, saved, tmp_path):
        small, queries = shortlist.load(saved), over_features[1]
        small.save(tmp_path / "again", bits=32)
        again = shortlist.load(tmp_path / "again")
        assert all_arrays(again)["classifier: weights"].dtype == np.int8
        assert np.array_equal(again.rank(queries, 5)[1], small.rank(queries, 5)[1])
        assert again.card["storage"]["bits"] == 8

    def test_the_card_says_how_the_model_is_stored(self, over_features, tmp_path):
        over_features[0].save(tmp_path / "32", bits=32)
        assert shortlist.load(tmp_path / "32").card["storage"] == {"bits": 32}
        shortlist.load(tmp_path / "32").save(tmp_path / "8", bits=8)
        again = shortlist.load(tmp_path / "8")
        assert all_arrays(again)["classifier: weights"].dtype == np.int8
        assert again.card["storage"]["bits"] == 8


def root_of(array):
    """The object that a view of a view … begins with."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def in_file(array):
    return isinstance(root_of(array), mmap.mmap) and not array.flags.writeable


class TestMapped:
    def test_arrays_stay_in_their_files(self, saved, tmp_path):
        assert all(in_file(array) for array in all_arrays(shortlist.load(saved)).values())
        shortlist.train(colours(60), recipe="centroid").save(tmp_path / "model")
        assert all(in_file(array) for array in all_arrays(shortlist.load(tmp_path / "model")).values())

    def test_arrays_are_those_that_safetensors_reads(self, saved):
        paths = sorted(saved.glob("*.safetensors"))
        assert [path.stem for path in paths] == ["candidates", "classifier", "encoder"]
        for path in paths:
            with path.open("rb") as file:
                found, expected = arrays_of(mapped(file), path), load_file(path)
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                assert found[name].dtype == array.dtype
                assert np.array_equal(found[name], array)
                assert found[name].flags.aligned

    def test_a_model_keeps_working_when_its_folder_is_replaced_or_removed(self, over_features, tmp_path):
        model, queries = over_features
        model.save(tmp_path / "model")
        loaded = shortlist.load(tmp_path / "model")
        expected = loaded.rank(queries, 5)
        loaded.save(tmp_path / "model")  # over itself
        assert all(np.array_equal(a, b) for a, b in zip(loaded.rank(queries, 5), expected, strict=True))
        shutil.rmtree(tmp_path / "model")
        assert all(np.array_equal(a, b) for a, b in zip(loaded.rank(queries, 5), expected, strict=True))

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x08",
            b"\xff" * 64,
            (2).to_bytes(8, "little") + b"[]",
            (1 << 40).to_bytes(8, "little") + b"{}",
            (60).to_bytes(8, "little") + b'{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}      ' + b"\0" * 4,
            (60).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}      ' + b"\0" * 4,
        ],
        ids=["empty", "short", "nonsense", "no object", "long header", "unknown dtype", "wrong shape"],
    )
    def test_damaged_files_are_refused(self, tmp_path, content):
        shortlist.train(colours(60), recipe="centroid").save(tmp_path / "model")
        put_file(tmp_path / "model", "classifier.safetensors", content)
        with pytest.raises(ModelError):
            shortlist.load(tmp_path / "model")


LINES = ["a", "", "tab\there", "line\nbreak", "back\\slash", "back\\nslash", "ü" * 3, "\r", "\u2028", "😀"]


class TestLines:
    @staticmethod
    def strings(lines):
        return lines_of("".join(f"{escaped(line)}\n" for line in lines).encode())

    @pytest.mark.parametrize("lines", [LINES, LINES[6:], ["only"], [""], []], ids=range(5))
    def test_lines_one_by_one_and_together(self, lines):
        strings = self.strings(lines)
        assert len(strings) == len(lines)
        assert list(strings) == lines
        assert [strings[i] for i in range(len(lines))] == lines
        assert [strings[-i] for i in range(1, len(lines) + 1)] == lines[::-1]
        assert strings[1:3] == lines[1:3]
        assert strings[::-1] == lines[::-1]
        with pytest.raises(IndexError):
            strings[len(lines)]

    def test_line_breaks_and_backslashes_are_escaped(self):
        assert escaped("a\nb\\n") == "a\\nb\\\\n"

    def test_labels_and_display_names_of_a_loaded_model(self, tmp_path):
        data = colours(60)
        data.display_names = {"code rot": "red\nand back\\slash"}
        model = shortlist.train(data, recipe="centroid")
        model.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.label_names == model.label_names
        assert again.display_names == model.display_names
        assert (again.n_labels, repr(again)) == (4, "Model(centroid, 4 labels)")
        assert again.predict("rot", k=1)[0].name == "red\nand back\\slash"
        assert again.predict("blau", k=1)[0].name == "code blau"
        assert len(again.vocabulary) == len(model.vocabulary)

    @pytest.mark.parametrize("name", ["labels.txt", "display_names.txt"])
    @pytest.mark.parametrize("content", [b"\xff\n" * 4, b"a\n", b"a\nb\nc\nd", b""], ids=str)
    def test_damaged_files_of_labels_are_refused(self, tmp_path, name, content):
        data = colours(60)
        data.display_names = {"code rot": "red"}
        shortlist.train(data, recipe="popular").save(tmp_path / "model")
        put_file(tmp_path / "model", name, content)
        if (name, content) == ("display_names.txt", b""):  # no names at all
            assert shortlist.load(tmp_path / "model").display_names == {}
            return
        with pytest.raises(ModelError, match="is damaged"):
            shortlist.load(tmp_path / "model")
