"""Files at URLs: a stand-in for S3, a folder as file://, and fsspec's memory."""

from __future__ import annotations

import io
import os
import tempfile
import uuid
from pathlib import Path

import pytest

import shortlist
from shortlist.cluster.predict import InputFile, input_files
from shortlist.cluster.train import check_replaceable_at, run_on_cluster
from shortlist.cluster.worker import TrainJob
from shortlist.data import storage
from shortlist.data.rows import RowOptions
from shortlist.errors import DataError, ModelError, OptionError

pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `parquet`")
pytest.importorskip("fsspec", reason="needs fsspec, which comes with the extra `ray`")


@pytest.fixture(params=["s3", "file", "memory"])
def root(request, tmp_path, s3):
    """A folder of a file system."""
    name = uuid.uuid4().hex
    return {"s3": f"s3://bucket/{name}", "file": f"file://{tmp_path}/{name}", "memory": f"memory://{name}"}[
        request.param
    ]


def test_files_are_found_by_folder_name_and_pattern(root):
    for name in ("in/a.jsonl", "in/b.jsonl", "in/b.csv", "in/more/c.jsonl", "in with space/d.jsonl"):
        storage.write_bytes(name.encode(), f"{root}/{name}")

    def found(pattern):
        return [stored.url.removeprefix(f"{root}/") for stored in storage.find_files(f"{root}/{pattern}")]

    assert found("in") == ["in/a.jsonl", "in/b.csv", "in/b.jsonl", "in/more/c.jsonl"]
    assert found("in/a.jsonl") == ["in/a.jsonl"]
    assert found("in/*.jsonl") == ["in/a.jsonl", "in/b.jsonl"]
    assert found("in/[b]*") == ["in/b.csv", "in/b.jsonl"]
    assert found("*/*.jsonl") == ["in with space/d.jsonl", "in/a.jsonl", "in/b.jsonl"]
    assert found("nothing") == found("nothing/*") == []
    (stored,) = storage.find_files(f"{root}/in/a.jsonl")
    assert stored.size == len("in/a.jsonl") and "10 bytes" in stored.version


def test_folders_are_copied_there_and_back(root, tmp_path):
    (tmp_path / "model" / "more").mkdir(parents=True)
    files = {"config.json": b"{}", "a.bin": bytes(range(256)) * 40_000, "more/b.txt": b""}
    for name, content in files.items():
        (tmp_path / "model" / name).write_bytes(content)
    storage.upload(tmp_path / "model", f"{root}/model", last="config.json")
    with storage.local_copy(f"{root}/model") as copy:
        assert copy.name == "model"
        assert {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*.*")} == files
    assert not copy.exists()
    with storage.local_copy(f"{root}/model", "config.json") as copy:
        assert [path.name for path in copy.iterdir()] == ["config.json"]
    with storage.local_copy(f"{root}/model/config.json") as copy:
        assert copy.read_bytes() == b"{}"
    with storage.local_copy(str(tmp_path)) as copy:
        assert copy == tmp_path
    storage.remove(f"{root}/model", first="config.json")
    assert not storage.exists(f"{root}/model/a.bin")
    storage.remove(f"{root}/model")
    with pytest.raises(DataError, match="no such file or folder"), storage.local_copy(f"{root}/model"):
        pass


def test_a_file_appears_when_it_is_complete(root):
    with pytest.raises(ZeroDivisionError), storage.writing(f"{root}/out.txt") as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert not storage.exists(f"{root}/out.txt")
    with storage.writing(f"{root}/out.txt") as path:
        path.write_text("whole")
    assert storage.read_bytes(f"{root}/out.txt") == b"whole"
    assert [stored.url for stored in storage.find_files(root)] == [f"{root}/out.txt"]


def test_half_a_file_is_removed(root):
    """Closing the stream of an object store stores what was written, also after an error."""
    storage.write_bytes(b"whole", f"{root}/a.txt")
    with pytest.raises(ZeroDivisionError), storage._replacing(f"{root}/b.txt") as file:
        file.write(b"ha")
        raise ZeroDivisionError
    assert [stored.url for stored in storage.find_files(root)] == [f"{root}/a.txt"]


def test_names_do_not_lead_out_of_the_folder(tmp_path, monkeypatch):
    names = ["config.json", "../../stolen.txt"]
    monkeypatch.setattr(storage, "files_below", lambda url: [storage.Stored(f"{url}/{name}", 1, "") for name in names])
    monkeypatch.setattr(storage, "open_file", lambda url: io.BytesIO(b"x"))
    with pytest.raises(DataError, match=r"/\.\./\.\./stolen\.txt: a file with such a name is not copied"):
        storage.download("s3://bucket/model", tmp_path / "a" / "b")
    assert not (tmp_path / "stolen.txt").exists()


def test_the_file_that_says_that_all_are_there_is_written_last(s3, tmp_path, monkeypatch):
    for name in ("config.json", "a", "z"):
        (tmp_path / name).write_text(name)
    written, write = [], storage._replacing
    monkeypatch.setattr(storage, "_replacing", lambda url: (written.append(url), write(url))[1])
    storage.upload(tmp_path, "s3://bucket/last", last="config.json")
    assert written == ["s3://bucket/last/a", "s3://bucket/last/z", "s3://bucket/last/config.json"]


def test_copies_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with storage.temporary_folder() as own:
        dead = tmp_path / Path(own).name.replace(f"-{os.getpid()}-", "-999999999-")
        others = [tmp_path / "shortlist-of-somebody"]
        # Of a machine called as this one, "-999999999"; the number of the process is 7.
        others.append(dead.with_name(dead.name.replace("-999999999-", "-999999999-7-")))
        for folder in (dead, *others):
            folder.mkdir()
        with storage.temporary_folder() as more:
            names = {Path(own).name, Path(more).name, *(other.name for other in others)}
            assert {path.name for path in tmp_path.iterdir()} == names


def test_only_a_model_is_replaced_by_one_that_is_trained(root, tmp_path):
    """Before any work: whatever is below the URL is removed at the end."""
    model = shortlist.train(["red shoes", "blue hat"], ["shoes", "hats"], "centroid")
    job = TrainJob("in.jsonl", "astec", f"{root}/out/", options={"checkpoint_dir": f"{root}/out.checkpoints"})
    check_replaceable_at(job.out)  # there is nothing
    for config in (b"{}", b"[" * 100_000):
        storage.write_bytes(config, f"{root}/out/config.json")
        with pytest.raises(ModelError, match="out/ exists and is not a model: nothing was written"):
            run_on_cluster(job, "127.0.0.1:1", 2)
    model.save(tmp_path / "model")
    storage.upload(tmp_path / "model", job.out)
    check_replaceable_at(job.out)
    storage.write_bytes(b"years of work", f"{root}/out/thesis/1.txt")
    with pytest.raises(ModelError, match=r"out/ holds 'thesis/1.txt', which is not part of the model"):
        run_on_cluster(job, "127.0.0.1:1", 2)


def test_input_of_a_prediction_on_a_cluster(root):
    file = "in/a.jsonl" if root.startswith("memory") else "in/a[1].jsonl"  # which fsspec cannot rename
    for name in (file, "in/notes.pdf", "other/notes.pdf"):
        storage.write_bytes(b"{}", f"{root}/{name}")
    (name,) = input_files([f"{root}/in"])
    assert name == f"{root}/{file}" and InputFile.of(name, None, RowOptions()).n_bytes == 2
    with pytest.raises(DataError, match=r"other: has no files with texts. Check the URL, or give a pattern"):
        input_files([f"{root}/other"])
    with pytest.raises(DataError, match=r"in: has no parquet files"):
        input_files([f"{root}/in"], "parquet")


def test_what_cannot_be_opened_is_said():
    with pytest.raises(OptionError, match="nonsense://host: cannot be opened"):
        storage.find_files("nonsense://host/in.jsonl")
