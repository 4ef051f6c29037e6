"""The command line, as a user meets it: output, exit codes, messages, nothing half-written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from scipy import sparse

import shortlist as library
from shortlist.cli import data as cli_data
from shortlist.cli import shortlist
from shortlist.data import write


@pytest.fixture
def run():
    def call(*arguments, stdin=None):
        return CliRunner().invoke(shortlist, [str(argument) for argument in arguments], input=stdin)

    return call


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"text": f"{color} {thing} {i}", "labels": [thing, color]}
            for i in range(10) for color in ("red", "blue") for thing in ("shoes", "hat")]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_whole_way(run, pairs, tmp_path):
    parts, model = tmp_path / "parts", tmp_path / "model"
    done = run("data", "split", pairs, parts, "--test", "0.25", "--seed", "3")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in parts.iterdir()) == ["test.jsonl.gz", "train.jsonl.gz"]
    done = run("train", parts, "--out", model)
    assert done.exit_code == 0, done.output
    done = run("predict", model, "a blue hat", "-k", "2")
    assert done.exit_code == 0
    assert {line.split()[1] for line in done.stdout.splitlines()[1:]} == {"hat", "blue"}
    done = run("evaluate", model, parts, "--intervals")
    assert done.exit_code == 0, done.output
    assert "PSP" in done.stdout
    measured = json.loads(run("evaluate", model, parts, "--json").stdout)
    assert measured["values"]["P@1"] == 100


def test_predictions_in_a_file_give_the_same_numbers(run, pairs, tmp_path):
    run("train", pairs, "--out", tmp_path / "model")
    texts = "".join(json.loads(line)["text"] + "\n" for line in pairs.read_text().splitlines())
    predicted = run("predict", tmp_path / "model", "--json", stdin=texts)
    (tmp_path / "predictions.jsonl").write_text(predicted.stdout)
    by_file = run("evaluate", tmp_path / "predictions.jsonl", pairs, "--train", pairs, "--json")
    by_model = run("evaluate", tmp_path / "model", pairs, "--train", pairs, "--json")
    assert by_file.exit_code == 0, by_file.output
    assert json.loads(by_file.stdout) == json.loads(by_model.stdout)


def test_describe_for_people_and_machines(run, pairs):
    table = run("data", "describe", pairs)
    assert table.exit_code == 0, table.output
    assert "40" in table.stdout
    assert json.loads(run("data", "describe", pairs, "--json").stdout)


def test_standard_input(run, pairs):
    done = run("data", "describe", "-", "--json", stdin=pairs.read_bytes())
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert run("data", "describe", "-", "--json", stdin=gzip.compress(pairs.read_bytes())).stdout == done.stdout


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv.gz", "pairs.parquet", "pairs.jsonl.zst"])
def test_convert_there_and_back(run, pairs, tmp_path, name):
    assert run("data", "convert", pairs, tmp_path / name).exit_code == 0
    assert run("data", "convert", tmp_path / name, tmp_path / "back.jsonl").exit_code == 0
    rows = [[json.loads(line) for line in path.read_text().splitlines()] for path in (pairs, tmp_path / "back.jsonl")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("form", ["repository-pair", "repository-single", "repository-json", "repository-text", "csv"])
def test_convert_a_folder_with_parts(run, pairs, tmp_path, form):
    run("data", "split", pairs, tmp_path / "parts")
    done = run("data", "convert", tmp_path / "parts", tmp_path / form, "--to", form)
    assert done.exit_code == 0, done.output
    for part in ("train", "test"):
        again, before = library.read(tmp_path / form, part), library.read(tmp_path / "parts", part)
        assert len(again) == len(before)
        assert len(again.labels.values) == len(before.labels.values)
    # The same number means the same label in every part.
    if form != "csv":
        assert library.read(tmp_path / form, "train").n_labels == library.read(tmp_path / form, "test").n_labels


def test_bad_lines_stop_or_are_listed(run, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "a", "labels": ["x"]}\nnonsense\n{"text": 3, "labels": []}\n')
    done = run("data", "describe", path)
    assert done.exit_code == 2
    assert f"{path}, line 2: not valid JSON" in done.stderr
    assert "Traceback" not in done.output
    done = run("data", "describe", path, "--on-error", "skip")
    assert done.exit_code == 0
    assert "skipped 2 bad lines" in done.stderr
    assert "line 3: 'text' is a number (3)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "describe", "nowhere.jsonl"], "no such file"),
        (["train", "nowhere.jsonl", "--out", "m"], "no such file"),
        (["predict", "nowhere", "text"], "no such model folder"),
        (["evaluate", "nowhere.jsonl", "nowhere.jsonl"], "no such file"),
        (["data", "split", "nowhere.jsonl", "out"], "no such file"),
    ],
)
def test_user_errors_exit_with_2_and_one_message(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(run, pairs, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for command in (["data", "split", pairs], ["data", "convert", pairs]):
        extra = ["--to", "repository-json"] if "convert" in command else []
        done = run(*command, tmp_path / "full", *extra)
        assert done.exit_code == 2
        assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


def test_options_of_a_recipe(run, pairs, tmp_path):
    assert run("train", pairs, "--out", tmp_path / "m", "--set", "min-count=2").exit_code == 0
    assert library.load(tmp_path / "m").options["min_count"] == 2
    done = run("train", pairs, "--out", tmp_path / "m2", "--set", "speed=9")
    assert (done.exit_code, "speed" in done.stderr) == (2, True)
    assert run("train", pairs, "--out", tmp_path / "m2", "--set", "nonsense").exit_code == 2


def test_a_matrix_of_scores_against_a_repository_folder(run, pairs, tmp_path):
    run("data", "split", pairs, tmp_path / "parts")
    run("data", "convert", tmp_path / "parts", tmp_path / "repository", "--to", "repository-json")
    test = library.read(tmp_path / "repository", "test")
    truth = test.labels.to_csr(test.n_labels)
    sparse.save_npz(tmp_path / "scores.npz", truth)
    done = run("evaluate", tmp_path / "scores.npz", tmp_path / "repository", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["values"]["P@1"] == 100
    sparse.save_npz(tmp_path / "narrow.npz", truth[:, :1])
    for scores, against in (("scores.npz", pairs), ("narrow.npz", tmp_path / "repository")):
        done = run("evaluate", tmp_path / scores, against)
        assert (done.exit_code, "by name" in done.stderr) == (2, True)


def test_filtered_labels_make_room_for_the_next(run, tmp_path):
    rows = [("red shoes", ["red", "shoes", "s1"]), ("red shoes", ["red", "shoes"])]
    library.read(rows).write(tmp_path / "train.jsonl")
    library.read([("red shoes", ["red", "s1", "shoes"])]).write(tmp_path / "test.jsonl")
    run("train", tmp_path / "train.jsonl", "--out", tmp_path / "model", "--recipe", "popular")
    (tmp_path / "filter.txt").write_text("0 0\n")  # "red", the commonest
    done = run("evaluate", tmp_path / "model", tmp_path / "test.jsonl", "--filter", tmp_path / "filter.txt",
               "-k", "1,2", "--json")  # fmt: skip
    assert json.loads(done.stdout)["values"]["P@2"] == 100


def test_a_missing_part_is_an_error_not_another_part(run, pairs, tmp_path):
    for have, command in (("train", ["evaluate", tmp_path / "model"]), ("test", ["train", "--out", tmp_path / "m2"])):
        (tmp_path / have).mkdir()
        library.read(pairs).write(tmp_path / have / f"{have}.jsonl")
        run("train", pairs, "--out", tmp_path / "model")
        done = run(*command, tmp_path / have)
        assert (done.exit_code, f"only {have}" in done.stderr) == (2, True), done.output
    assert not (tmp_path / "m2").exists()


def test_swapped_arguments_are_noticed(run, pairs, tmp_path):
    run("train", pairs, "--out", tmp_path / "model")
    done = run("evaluate", pairs, tmp_path / "model")
    assert (done.exit_code, "is a model" in done.stderr) == (2, True)
    assert "not a model" in run("evaluate", tmp_path, pairs).stderr


def test_repeated_and_unknown_predictions_count_as_misses(run, tmp_path):
    (tmp_path / "truth.jsonl").write_text('{"text": "x", "labels": ["b"]}\n')
    (tmp_path / "predictions.jsonl").write_text('{"labels": ["a", "a", "b"]}\n')
    done = json.loads(
        run("evaluate", tmp_path / "predictions.jsonl", tmp_path / "truth.jsonl", "-k", "2", "--json").stdout
    )
    assert done["values"]["P@2"] == 0
    assert any("'a'" in note for note in done["notes"])


def test_a_file_is_replaced_only_when_asked(run, pairs, tmp_path):
    before = pairs.read_bytes()
    done = run("data", "convert", pairs, pairs)
    assert (done.exit_code, "--overwrite" in done.stderr, pairs.read_bytes()) == (2, True, before)
    (tmp_path / "old.csv").write_text("old")
    assert run("data", "convert", pairs, tmp_path / "old.csv", "--overwrite").exit_code == 0
    assert (tmp_path / "old.csv").read_text().startswith("text,labels")
    done = run("data", "convert", pairs, tmp_path / "out.jsonl", "--to", "jsonl.gz")
    assert (done.exit_code, "end in .gz" in done.stderr) == (2, True)


def test_convert_to_standard_output(run, pairs):
    done = run("data", "convert", pairs, "-")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        json.loads(line) for line in pairs.read_text().splitlines()
    ]


def test_split_by_time_prints_the_times_of_the_parts(run, tmp_path):
    rows = [{"text": f"t{i}", "labels": ["a"], "date": f"2024-01-{i:02}"} for i in range(1, 11)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("data", "split", tmp_path / "log.jsonl", tmp_path / "parts", "--time", "date")
    assert "train: 2024-01-01 to 2024-01-08; test: 2024-01-09 to 2024-01-10" in done.stdout


def test_split_says_how_many_labels_are_not_in_train(run, tmp_path):
    rows = [{"text": f"t{i}", "labels": [f"only {i}"], "author": str(i % 5)} for i in range(10)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("data", "split", tmp_path / "pairs.jsonl", tmp_path / "plain")
    assert "held-out labels without a text in train: 2 of 2 (100.0 %)" in done.stdout
    done = run("data", "split", tmp_path / "pairs.jsonl", tmp_path / "grouped", "--group", "author")
    assert done.exit_code == 0, done.output
    test = [int(text[1:]) % 5 for text in library.read(tmp_path / "grouped", "test").texts]
    assert len(test) == 2 and len(set(test)) == 1
    assert run("data", "split", tmp_path / "pairs.jsonl", tmp_path / "even", "--stratified").exit_code == 0
    for extra in (["--keep-labels"], ["--stratified"], ["--time", "text"]):
        done = run("data", "split", tmp_path / "pairs.jsonl", tmp_path / "no", "--group", "author", *extra)
        assert (done.exit_code, "choose one" in done.stderr) == (2, True)
    assert not (tmp_path / "no").exists()


def test_keep_labels_warns_on_the_command_line(run, tmp_path, caplog):
    rows = [{"text": f"t{i}", "labels": [f"only {i}"]} for i in range(10)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("data", "split", tmp_path / "pairs.jsonl", tmp_path / "parts", "--keep-labels")
    assert "there is no test part: too few texts, or their labels were needed in train" in done.stderr
    assert "P@1 by up to 100.0 % of its value" in " ".join(caplog.text.split())


def test_evaluate_states_leaks_and_unseen_labels_unasked(run, pairs, tmp_path):
    parts, model = tmp_path / "parts", tmp_path / "model"
    run("data", "split", pairs, parts, "--to", "jsonl")
    first = json.loads((parts / "train.jsonl").read_text().splitlines()[0])
    with (parts / "test.jsonl").open("a") as file:
        file.write(json.dumps({"text": first["text"].upper(), "labels": ["new"]}) + "\n")
    run("train", parts, "--out", model)
    done = run("evaluate", model, parts)
    assert "Unseen labels: 1 of 5 test labels" in done.stdout and "WARNING, leaks: 1 of 9 test texts" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    done = run("evaluate", model, parts, "--drop-leaks")
    assert "They were left out." in " ".join(done.stdout.split()) and "texts: 8" in done.stdout
    done = run("evaluate", model, parts / "test.jsonl")
    assert "Leaks and unseen labels: not known" in done.stdout
    done = run("evaluate", model, parts / "test.jsonl", "--drop-leaks")
    assert (done.exit_code, "--train" in done.stderr) == (2, True)


def test_cross_validation(run, pairs, tmp_path):
    done = run("evaluate", "--folds", "4", pairs, "--recipe", "centroid", "--set", "min_count=2")
    assert done.exit_code == 0, done.output
    assert "100.00 ± 0.00" in done.stdout and "over 4 folds" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads(run("evaluate", "--folds", "4", pairs, "--recipe", "centroid", "-k", "1", "--json").stdout)
    assert found["values"]["P@1"] == 100 and found["deviations"]["P@1"] == 0 and len(found["folds"]) == 4
    for wrong, message in (
        (["--folds", "4", pairs, pairs, "--recipe", "centroid"], "leave out a second argument"),
        (["--folds", "4", pairs, "--recipe", "centroid", "--drop-leaks"], "leave out --drop-leaks"),
        (["--folds", "1", pairs, "--recipe", "centroid"], "from 2 to 40 folds"),
        ([pairs, pairs, "--recipe", "centroid"], "leave out --recipe"),
        ([pairs, pairs, "--set", "min_count=2"], "leave out --set"),
        ([pairs], "or set --folds"),
    ):
        done = run("evaluate", *wrong)
        assert (done.exit_code, message in done.stderr) == (2, True), done.output


def test_a_part_too_small_to_be_there_is_mentioned(run, tmp_path):
    (tmp_path / "one.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    assert "there is no test part" in run("data", "split", tmp_path / "one.jsonl", tmp_path / "parts").stderr


def test_an_empty_file_and_a_misplaced_command(run, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    done = run("data", "describe", tmp_path / "empty.jsonl")
    assert (done.exit_code, "contains no texts" in done.stderr) == (2, True)
    assert "shortlist data split" in run("split", "x").stderr


def test_where_the_model_may_not_go_is_said_before_training(run, pairs, tmp_path, monkeypatch):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").touch()
    monkeypatch.setattr("shortlist.training.train.train", lambda *arguments: pytest.fail("it was trained"))
    done = run("train", pairs, "--out", tmp_path / "thesis")
    assert (done.exit_code, "nothing was written" in done.stderr) == (2, True), done.output


def test_the_command_line_offers_the_formats_the_library_writes():
    # It has lists of its own, because asking the library would make `--help` load numpy.
    assert list(write.FOLDER_FORMATS) == cli_data.FOLDER_FORMATS
    offered = {name.partition(".")[0] for name in cli_data.OUTPUT_FORMATS}
    assert offered | {"annif-vocabulary"} == set(write.FILE_FORMATS)


def test_bad_ranks(run, pairs):
    done = run("evaluate", pairs, pairs, "-k", "one")
    assert (done.exit_code, "1,3,5" in done.stderr) == (2, True)


def test_recipes_and_completion_and_version(run):
    assert "centroid" in run("recipes").stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_SHORTLIST_COMPLETE" in run("completion", shell).stdout
    assert library.__version__ in run("--version").stdout


@pytest.mark.parametrize(
    "command",
    ["data", "data describe", "data convert", "data split", "train", "predict", "evaluate", "completion"],
)
def test_help_has_examples(run, command):
    done = run(*command.split(), "--help")
    assert done.exit_code == 0
    assert "shortlist" in done.stdout


def commands(command=shortlist, path=()):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_fits_into_80_columns(command):
    done = CliRunner().invoke(shortlist, [*command, "--help"], prog_name="shortlist", terminal_width=80)
    lines = [line for line in done.output.splitlines() if not line.startswith("Usage:")]
    assert [line for line in lines if len(line) > 80 or line.endswith("...")] == []


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(pairs, tmp_path):
    command = f"{sys.executable} -m shortlist data describe {pairs} --json | true"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr


def test_a_model_is_not_replaced_unasked(run, pairs, tmp_path):
    model = tmp_path / "model"
    assert run("train", pairs, "--out", model).exit_code == 0
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    done = run("train", pairs, "--out", model, "--recipe", "popular")
    assert (done.exit_code, "Add --overwrite to replace it" in done.stderr) == (2, True)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    done = run("train", pairs, "--out", model, "--recipe", "popular", "--overwrite")
    assert done.exit_code == 0 and library.load(model).recipe == "popular"


def test_another_model_is_not_replaced_unasked(run, pairs, tmp_path):
    for name in ("one", "two"):
        assert run("train", pairs, "--out", tmp_path / name, "--recipe", "centroid").exit_code == 0
    before = (tmp_path / "two" / "config.json").read_bytes()
    for command in (("update", tmp_path / "one", pairs), ("labels", "remove", tmp_path / "one", "red"),
                    ("labels", "store-list", tmp_path / "one", "few", "red"), ("merge", tmp_path / "one")):  # fmt: skip
        done = run(*command, "--out", tmp_path / "two")
        assert (done.exit_code, "Add --overwrite to replace it" in done.stderr) == (2, True), command
    assert (tmp_path / "two" / "config.json").read_bytes() == before
    assert run("labels", "remove", tmp_path / "one", "red", "--out", tmp_path / "two", "--overwrite").exit_code == 0
    assert "red" not in library.load(tmp_path / "two").label_names
    assert run("labels", "remove", tmp_path / "one", "red", "--out", tmp_path / "one").exit_code == 0  # named itself


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_convert_says_which_fields_it_drops(run, tmp_path, name):
    if name == "in.parquet":
        pytest.importorskip("pyarrow")
    rows = [{"text": "red shoes", "labels": ["shoes"], "sku": "a1", "price": 3}]
    library.read(rows, keep=["sku", "price"]).write(tmp_path / name)
    done = run("data", "convert", tmp_path / name, tmp_path / "out.jsonl")
    assert "dropped fields: sku, price. To keep one: --keep sku" in done.stderr
    done = run("data", "convert", tmp_path / name, tmp_path / "out2.jsonl", "--keep", "sku", "--keep", "price")
    assert done.exit_code == 0 and "dropped" not in done.stderr


def test_predict_explains(run, pairs, tmp_path):
    model = tmp_path / "model"
    run("train", pairs, "--out", model)
    done = run("predict", model, "blue hat", "xyzzy", "-k", "2", "--explain")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [lines[0], lines[1][1], lines[3][1]] in ([["blue", "hat"], "hat", "blue"], [["blue", "hat"], "blue", "hat"])
    effects = dict(zip(*[iter(" ".join(lines[2]).replace(",", "").split())] * 2, strict=True))
    assert float(effects[lines[1][1]]) > 0.5
    assert "no known words" in done.stdout
    (one,) = (json.loads(line) for line in run("predict", model, "blue hat", "--explain", "--json").stdout.splitlines())
    assert [word for word, _ in one["labels"][0]["words"]] == ["blue", "hat"]
    done = run("predict", model, pairs, "--explain")
    assert (done.exit_code, "for texts as arguments" in done.stderr) == (2, True)


def test_wrong_commands_have_a_suggestion(run):
    assert "Did you mean 'train'?" in run("trian").stderr
    assert "Did you mean 'describe'?" in run("data", "descibe").stderr
    # Options of recipes are set in another way.
    for wrong, right in {"--n-epochs": "n_epochs", "--epocs": "n_epochs", "--word-vectors": "vectors"}.items():
        assert f"Did you mean '--set {right}=VALUE'?" in run("train", "x.jsonl", "--out", "m", wrong, "3").stderr
    assert "--set" not in run("data", "split", "x.jsonl", "y", "--kep", "3").stderr


@pytest.mark.parametrize("seed", ["-1", "4294967296"])
@pytest.mark.parametrize(
    "command",
    [
        "data split PAIRS OUT",
        "report OUT PAIRS",
        "train PAIRS --out OUT --recipe astec",
        "update OUT PAIRS --out OUT",
    ],
)
def test_seeds_out_of_range(run, pairs, tmp_path, seed, command):
    if command.startswith(("report", "update")):
        library.train(pairs, recipe="centroid").save(tmp_path / "out")
    places = {"PAIRS": str(pairs), "OUT": str(tmp_path / "out")}
    result = run(*(places.get(word, word) for word in command.split()), "--seed", seed)
    assert result.exit_code == 2
    assert f"seed is {seed}" in result.stderr and "4294967295" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "serve MODEL --drain-delay nan",
        "compare PAIRS --out OUT --minutes nan",
        "plan --labels 9 --texts 9 --memory nan",
    ],
)
def test_ranges_of_numbers_exclude_nan(run, command):
    result = run(*command.split())
    assert result.exit_code == 2 and "nan is not a number" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(pairs, tmp_path, closed):
    library.train(pairs, recipe="centroid").save(tmp_path / "model")
    command = f"{sys.executable} -m shortlist predict {tmp_path}/model {pairs} --out {tmp_path}/out.jsonl {closed}"
    assert subprocess.run(["sh", "-c", command]).returncode == 0
    written = (tmp_path / "out.jsonl").read_text().splitlines()
    assert len(written) == len(pairs.read_text().splitlines())
    assert all("labels" in json.loads(line) for line in written)  # and no message took the place of a stream


def test_resume_without_an_interrupted_training_starts_one(run, pairs, tmp_path):
    done = run("train", pairs, "--out", tmp_path / "model", "--resume")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "pairs.jsonl"]


def test_resuming_a_training_that_is_complete(run, pairs, tmp_path):
    command = ["train", pairs, "--recipe", "centroid", "--out", tmp_path / "model"]
    assert run(*command).exit_code == 0
    before = (tmp_path / "model" / "config.json").stat().st_mtime_ns
    done = run(*command, "--resume")
    assert done.exit_code == 0 and "already complete" in done.stderr
    assert (tmp_path / "model" / "config.json").stat().st_mtime_ns == before
    assert "overwrite" in run(*command).stderr
    (tmp_path / "model.checkpoints").mkdir()  # as after a kill between saving and removing the checkpoints
    assert run(*command, "--resume").exit_code == 0
    assert (tmp_path / "model" / "config.json").stat().st_mtime_ns > before
