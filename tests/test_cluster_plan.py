"""`shortlist plan`: the formulas, and how they follow the sizes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from shortlist.cli import shortlist
from shortlist.cluster.plan import Machine, Sizes, Speeds, make_plan
from shortlist.errors import OptionError

SIZES = ["--labels", "3e6", "--texts", "2e6"]


def plan(*arguments, code=0):
    done = CliRunner().invoke(shortlist, ["plan", *map(str, arguments)])
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def test_label_rows_are_shared_and_texts_are_not():
    one, four = (make_plan(Sizes(2_000_000, 3_000_000, n)).phases[-1].memory for n in (1, 4))
    assert four["label rows"] == pytest.approx(one["label rows"] / 4)
    assert four["candidates"] < one["candidates"]
    assert four["texts and labels"] == one["texts and labels"]
    assert one["label rows"] == 3_000_000 * (8 * 300 + 16)  # weights, and those of the best epoch


def test_network_is_the_gradient_to_the_features():
    """Batch × D × 4 bytes, to be summed and back, but for a worker's own part; nothing on one machine."""
    one, four = (make_plan(Sizes(2_000_000, 3_000_000, n)).phases[-1] for n in (1, 4))
    assert four.bytes_per_step == 2 * 256 * 300 * 4 * 3 / 4
    assert one.bytes_per_step == 0
    assert four.n_steps == -(-2_000_000 // 256)


def test_time_follows_workers_cores_and_the_network():
    sizes, speeds = Sizes(2_000_000, 3_000_000, 4), Speeds(1e9, 1e10, 0.001)
    phase = make_plan(sizes).phases[-1]
    computing, waiting = phase.seconds(sizes, Machine(cores=8), speeds)
    rows = 3 * 300 * (200 + 50 + 3) / 4 / 1e9
    assert computing == pytest.approx(2_000_000 * (rows + (3 * 300 + 9) * 300 / 1e10) / 8)
    assert waiting == pytest.approx(phase.n_steps * (0.001 + 8 * phase.bytes_per_step / 1e10))
    assert phase.seconds(sizes, Machine(cores=16), speeds)[0] == pytest.approx(computing / 2)


def test_prints_a_table_hours_and_a_price():
    output = plan(*SIZES, "--workers", 4, "--price", 2)
    assert "classifier" in output and "It fits." in output and "currency" in output


def test_json_has_the_same_numbers():
    made = json.loads(plan(*SIZES, "--workers", 4, "--price", 2, "--json"))
    assert [row["phase"] for row in made["phases"]] == ["surrogate", "candidates", "classifier"]
    assert made["price"] == pytest.approx(made["hours"] * 4 * 2)
    assert made["peak_gb"] == max(row["memory_gb"] for row in made["phases"])


def test_what_does_not_fit_is_said():
    assert "It does not fit" in plan(*SIZES, "--memory", 1, code=1)


def test_dim_is_the_recipe_s_option():
    assert make_plan(Sizes(10_000, 10_000), embedding_dim=100).phases[-1].memory["label rows"] == 10_000 * 816


@pytest.mark.parametrize("labels", ["0", "many", "1.5", "-3"])
def test_sizes_are_whole_numbers(labels):
    assert "not a positive whole number" in plan("--labels", labels, "--texts", 10, code=2)


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(OptionError, match="no formulas for 'popular'"):
        make_plan(Sizes(100, 100), recipe="popular")
    with pytest.raises(OptionError, match="one machine only"):
        make_plan(Sizes(100, 100, 2), recipe="xml-cnn")
    with pytest.raises(OptionError, match="200 workers are more than 100 labels"):
        make_plan(Sizes(100, 100, 200))


def test_workers_share_the_rows_of_inceptionxml_plus():
    options = {"n_clusters": 1000, "n_clusters_searched": 100, "batch_size": 64}
    alone, four = (make_plan(Sizes(50_000, 8000, n), recipe="inceptionxml+", **options) for n in (1, 4))
    (alone,), (four,) = alone.phases, four.phases
    assert four.memory["label rows"] == pytest.approx(alone.memory["label rows"] / 4, rel=0.01)
    assert alone.bytes_per_step == 0
    (n_features,) = {four.of_labels / 3 / (1000 + 100 * 8)}
    assert four.bytes_per_step == 2 * (2 * 4 * 64 * n_features) * 3 / 4 + 8 * 64 * 100 * 3


@pytest.mark.slow
def test_inceptionxml_plus_and_measured_speeds():
    made = json.loads(plan(*SIZES, "--recipe", "inceptionxml+", "--measure", "--json"))
    assert [row["phase"] for row in made["phases"]] == ["joint"]
    assert made["speeds"]["rows"] > 1e7 and made["speeds"]["dense"] > 1e7


def test_manifests_in_the_docs_are_yaml():
    yaml = pytest.importorskip("yaml")
    blocks = re.findall(
        r"```yaml\n(.*?)```", (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(), re.DOTALL
    )
    job, service = map(yaml.safe_load, blocks)
    assert (job["kind"], service["kind"]) == ("RayJob", "RayService")
    for cluster in (job["spec"]["rayClusterSpec"], service["spec"]["rayClusterConfig"]):
        assert cluster["authOptions"] == {"mode": "token"}
        assert cluster["headGroupSpec"]["template"]["spec"]["containers"]
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    assert application["import_path"] == "app:app"
