"""Draw the plots. Run in the clients' environment (matplotlib): `python -m benchmarks.draw FOLDER < series.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypedDict

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


class Series(TypedDict):
    plot: str
    label: str
    points: list[list[float]]


COLOURS = {
    "manystream": "#d6336c",
    "bare epoll + orjson (floor)": "#868e96",
    "libcurl multi + orjson": "#1c7ed6",
    "aiohttp + orjson by hand": "#2f9e44",
}
OTHER_COLOUR = "#e67700"


def bars(name: str, series: list[Series], file: Path) -> None:
    """One bar per client, longest at the top, with its figure."""
    ordered = sorted(series, key=lambda line: line["points"][0][1])
    values = [line["points"][0][1] for line in ordered]
    figure, axes = plt.subplots(figsize=(8, 0.6 * len(ordered) + 1))
    drawn = axes.barh(
        [line["label"] for line in ordered],
        values,
        color=[COLOURS.get(line["label"], OTHER_COLOUR) for line in ordered],
    )
    axes.bar_label(drawn, labels=[f"{value:,.0f}" for value in values], padding=4)
    axes.set_xlim(0, max(values) * 1.12 or 1)
    axes.set_title(name)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120, bbox_inches="tight")
    plt.close(figure)


LOGARITHMIC = ("p99 over", "cost per event")
UNITS = {"p99 over": "p99 delivery, ms", "cost per event": "CPU per event, µs", "memory": "resident memory, MiB"}


def lines(name: str, series: list[Series], file: Path) -> None:
    """One line per client over the number of streams."""
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for line in series:
        colour = COLOURS.get(line["label"], OTHER_COLOUR)
        across, up = zip(*line["points"], strict=True)
        axes.plot(across, up, marker="o", markersize=4, label=line["label"], color=colour)
    axes.set_xlabel("live streams")
    axes.set_ylabel(next((unit for start, unit in UNITS.items() if name.startswith(start)), ""))
    if name.startswith(LOGARITHMIC):
        axes.set_xscale("log")
    if name.startswith("p99"):
        axes.set_yscale("log")
        axes.axhline(50, color="#495057", linewidth=0.8, linestyle="--")
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(name)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    folder = Path(sys.argv[1])
    plots: dict[str, list[Series]] = {}
    for line in json.load(sys.stdin):
        if line["points"]:
            plots.setdefault(line["plot"], []).append(line)
    for name, series in plots.items():
        file = folder / (name.lower().replace(",", "").replace(" ", "-") + ".png")
        (bars if name == "live streams per client" else lines)(name, series, file)
        print(f"drew {file.name}")


if __name__ == "__main__":
    main()
