"""Draw records acknowledged and consumed over time, with the kill marked."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt


def draw(
    path: Path,
    acknowledged: Sequence[tuple[float, int]],
    consumed: Sequence[tuple[float, int]],
    killed_s: float,
    killed: str,
) -> None:
    """Write the picture to `path`; times are seconds since the write began."""
    figure, axes = plt.subplots(figsize=(9, 5), dpi=120)
    for timeline, label, colour, width in (
        (acknowledged, "acknowledged (acks=all)", "#1f6f8b", 2.4),
        (consumed, "consumed by confluent-kafka", "#e0a030", 1.6),
    ):
        axes.step(
            [seconds for seconds, _ in timeline],
            [records for _, records in timeline],
            where="post",
            label=label,
            color=colour,
            linewidth=width,
        )
    axes.axvline(killed_s, color="#b03030", linestyle="--", linewidth=1.4)
    axes.annotate(
        f"SIGKILL: {killed}",
        (killed_s, 0.05),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        xytext=(-6, 0),
        horizontalalignment="right",
        color="#b03030",
    )
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
