"""`shortlist card`: print the model card."""

from __future__ import annotations

import json
from typing import Any

import click

from shortlist.printable import printable

TAIL_METRICS = ("P@1", "PSP@1", "P@5", "PSP@5")


@click.command()
@click.argument("model", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def card(model: str, as_json: bool) -> None:
    """Print the model card of MODEL.

    It has the data, metrics on held-out texts, thresholds, calibration, search effort and size.

    \b
    shortlist card model/
    shortlist card model/ --json | jq .scores
    """
    from shortlist.model import load

    content = load(model).card
    click.echo(printable(json.dumps(content, ensure_ascii=False) if as_json else "\n".join(_lines(content))))


def _lines(content: dict[str, Any]) -> list[str]:
    from shortlist.tables import plain

    data, storage = content.get("data", {}), content.get("storage", {})
    lines = [f"{content['title']}, {content['n_labels']:,} labels"]
    if content.get("n_words") is not None:
        lines[0] += f", {content['n_words']:,} words"
    if "size_bytes" in content:
        lines.append(f"{content['size_bytes'] / 1e6:,.1f} MB in {storage.get('bits', 32)} bits, {content['created']}")
    if data:
        lines.append(f"trained on {data['texts']:,} texts with {data['pairs']:,} labels")
    if "P@1_as_stored" in storage:
        lines.append(f"P@1 in 8 bits {storage['P@1_as_stored']:.2f}, in 32 bits {storage['P@1_as_learnt']:.2f} *")
    if content.get("scores"):
        held_out = f"{data.get('held_out_texts', 0):,} held-out texts"
        lines += ["", plain([held_out, ""], [[name, f"{value:.2f}"] for name, value in content["scores"].items()])]
    if content.get("search_effort", {}).get("of", 1) > 1:
        search_effort = content["search_effort"]
        lines += [
            "",
            f"searches {search_effort['searched']:,} clusters of labels. P@1 on held-out texts by clusters searched:",
        ]
        lines.append(
            plain(["clusters", "P@1"], [[f"{r['searched']:,}", f"{r['P@1']:.2f}"] for r in search_effort["curve"]])
        )
    if content.get("min_score") or content.get("threshold", {}).get("labels_with_own"):
        lines += ["", _threshold(content["min_score"], content.get("threshold", {}))]
    if content.get("tail_choice", {}).get("curve"):
        lines += ["", f"tail=auto is {content['tail']:g}, chosen on these held-out texts:"]
        rows = [
            [
                f"{point['tail']:.1f}",
                *(f"{point[name]:.2f}" for name in TAIL_METRICS),
                f"{point['loss']:.2f} ± {point['standard_error']:.2f}",
                f"{point['expected_loss']:.2f}",
            ]
            for point in content["tail_choice"]["curve"]
        ]
        lines.append(plain(["tail", *TAIL_METRICS, "loss of P@1, standard error", "by scores"], rows))
    if content.get("calibration", {}).get("table"):
        calibration = content["calibration"]
        lines += ["", f"calibration ({calibration['method']}), on predictions that it was not fitted on:"]
        rows = [
            [
                f"{row['from']:.1f} to {row['to']:.1f}",
                f"{row['labels']:,}",
                f"{row['mean_score']:.3f}",
                f"{row['right']:.3f}",
            ]
            for row in calibration["table"]
        ]
        lines.append(plain(["score", "labels", "mean score", "precision"], rows))
    if "P@1_as_stored" in storage:
        lines += ["", "* For comparing 8 and 32 bits only: the re-ranker may have learnt from these texts."]
    return lines


def _threshold(min_score: float, found: dict[str, Any]) -> str:
    line = f"threshold: min_score {min_score:g}"
    if found.get("labels_with_own"):
        line += f", and one of their own for {found['labels_with_own']:,} labels"
    if "goal" in found:
        line += (
            f"; chosen for {found['goal']} on {found['texts']:,} texts: {100 * found['answered']:.1f} % of them have "
            f"an answer, {100 * found['right']:.1f} % of the labels are right"
        )
    return line
