"""Draw records acknowledged and consumed over time, with the kill and the batch's commit marked."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from sparklog.jobs.demo.observers import Observed


def draw(path: Path, observed: Observed) -> None:
    """Write the picture to `path`; times are seconds since the write began."""
    figure, axes = plt.subplots(figsize=(9, 5), dpi=120)
    for timeline, label, colour, width in (
        (observed.acknowledged, "acknowledged (acks=all)", "#1f6f8b", 2.4),
        (observed.consumed, "consumed by confluent-kafka (committed records)", "#e0a030", 1.6),
    ):
        axes.step(
            [seconds for seconds, _ in timeline],
            [records for _, records in timeline],
            where="post",
            label=label,
            color=colour,
            linewidth=width,
        )
    _mark(axes, observed.killed_s, f"SIGKILL: {observed.killed}", "#b03030", 0.05)
    if observed.committed_s is not None:
        text = "the batch commits:\nonly now can consumers read it"
        _mark(axes, observed.committed_s, text, "#4a7a3a", 0.4)
    axes.set_xlabel("seconds since the write began")
    axes.set_ylabel("records")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title("A year of flights into a three-broker cluster, one broker killed on the way")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _mark(axes: Axes, seconds: float, text: str, colour: str, height: float) -> None:
    axes.axvline(seconds, color=colour, linestyle="--", linewidth=1.4)
    axes.annotate(
        text,
        (seconds, height),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        xytext=(-6, 0),
        horizontalalignment="right",
        color=colour,
    )
