"""Draw the plots: `python -m benchmarks.draw FOLDER < series.json`, in the clients' environment (matplotlib)."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter, StrMethodFormatter


class Series(TypedDict):
    plot: str
    label: str
    points: list[list[float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """How the plots with one beginning of their names are drawn.

    across, up: the titles of the axes, each with its unit.
    logarithmic: which axes have a logarithmic scale: "x", "xy" or none.
    limit: a horizontal line, in the unit of `up`.
    """

    across: str
    up: str
    logarithmic: str = ""
    limit: float | None = None


STREAMS = "live streams"
RUN = "requests and levels during a run"
BARS = {
    "live streams per client": "live streams (50 events/s each, p99 delivery ≤ 50 ms)",
    "an application of 500 agents": "CPU seconds (500 agents, each with two tool calls and an answer)",
}
"""Name of a plot with bars → the title of its axis, with the unit."""
PLOTS = {
    "p99 over": Plot(STREAMS, "p99 delivery (ms)", "xy", limit=50),
    "median delay": Plot(STREAMS, "median delivery (ms)", "xy"),
    "cost per event": Plot(STREAMS, "CPU per event (µs)", "x"),
    "memory": Plot(STREAMS, "resident memory (MiB)"),
    "cost of a common beginning": Plot(
        "calls that start together", "US dollars for a beginning of 20,000 tokens", "xy"
    ),
    "time to serialise": Plot("messages in the request", "CPU per request (µs)"),
}
"""Beginning of a plot's name → how it is drawn."""

COLOURS = {
    "manystream": "#d6336c",
    "bare epoll + orjson (floor)": "#868e96",
    "libcurl multi + orjson": "#1c7ed6",
    "aiohttp + orjson by hand": "#2f9e44",
    "openai SDK": "#e67700",
    "anthropic SDK": "#7048e8",
    "google-genai SDK": "#0b7285",
    "openai-chat": "#e67700",
    "openai-responses": "#1c7ed6",
    "anthropic": "#7048e8",
    "gemini": "#2f9e44",
    "gemini-interactions": "#0b7285",
    "received by the server": "#2f9e44",
    "refused by the server": "#d6336c",
    "all at once": "#868e96",
    "Traffic(warm=False)": "#1c7ed6",
    "Traffic()": "#d6336c",
    "level, reported limit": "#1c7ed6",
    "level, learned limit": "#e67700",
}
"""Label → colour. No two labels of one plot share a colour. A label without a colour here is an error."""


def bars(name: str, series: list[Series], file: Path) -> None:
    """Draw one bar per client with its figure, the longest at the top."""
    ordered = sorted(series, key=lambda line: line["points"][0][1])
    values = [line["points"][0][1] for line in ordered]
    _, axes = plt.subplots(figsize=(8, 0.6 * len(ordered) + 1.3))
    places = 0 if max(values) >= 100 else 1
    drawn = axes.barh([line["label"] for line in ordered], values, color=[COLOURS[line["label"]] for line in ordered])
    axes.bar_label(drawn, labels=[f"{value:,.{places}f}" for value in values], padding=4)
    axes.set_xlim(0, max(values) * 1.12 or 1)
    axes.set_xlabel(BARS[name])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    finish(axes, name, file)


def lines(name: str, series: list[Series], file: Path) -> None:
    """Draw one line per client. It connects the medians; a small dot shows each measurement."""
    plot = next(each for start, each in PLOTS.items() if name.startswith(start))
    _, axes = plt.subplots(figsize=(8, 4.5))
    for line in sorted(series, key=lambda each: max(each["points"])[1], reverse=True):
        colour = COLOURS[line["label"]]
        measured: dict[float, list[float]] = {}
        for across, up in line["points"]:
            measured.setdefault(across, []).append(up)
        places = sorted(measured)
        medians = [statistics.median(measured[place]) for place in places]
        axes.plot(places, medians, marker="o", markersize=4, label=line["label"], color=colour)
        axes.scatter(*zip(*line["points"], strict=True), s=5, color=colour, alpha=0.4)
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    if "x" in plot.logarithmic:
        axes.set_xscale("log")
    if "y" in plot.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(LogFormatter())  # plain numbers, and only as many as fit
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if plot.limit is not None:
        axes.axhline(plot.limit, color="#495057", linewidth=0.8, linestyle="--", label=f"limit: {plot.limit:g} ms")
    axes.legend(frameon=False)
    finish(axes, name, file)


def run(name: str, series: list[Series], file: Path) -> None:
    """Draw the requests of one run over its levels, on the same axis of time."""
    _, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), height_ratios=(3, 2))
    for line in series:
        axes = below if line["label"].startswith("level") else above
        axes.plot(*zip(*line["points"], strict=True), label=line["label"], color=COLOURS[line["label"]])
    above.set_ylabel("requests, all in all")
    below.set_ylabel("requests that may be sent now")
    below.set_yscale("symlog", linthresh=10)
    below.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    below.set_xlabel("seconds")
    below.axhline(0, color="#495057", linewidth=0.8)
    below.spines[["top", "right"]].set_visible(False)
    for axes in (above, below):
        axes.legend(frameon=False)
        axes.set_xlim(left=0)
    finish(above, name, file)


def finish(axes: Axes, name: str, file: Path) -> None:
    """Write the title and the file."""
    axes.set_title(name)
    axes.spines[["top", "right"]].set_visible(False)
    plt.savefig(file, dpi=120, bbox_inches="tight")
    plt.close()


FORMS = {**dict.fromkeys(BARS, bars), RUN: run}
"""Name of a plot → the function that draws it. All others are lines."""


def main() -> None:
    folder = Path(sys.argv[1])
    plots: dict[str, list[Series]] = {}
    for line in json.load(sys.stdin):
        if line["points"]:
            plots.setdefault(line["plot"], []).append(line)
    for name, series in plots.items():
        file = folder / (name.lower().replace(",", "").replace(" ", "-") + ".png")
        FORMS.get(name, lines)(name, series, file)
        print(f"drew {file.name}")


if __name__ == "__main__":
    main()
