"""Read recorded responses with the engine and compare with the reference: `python -m tests.conformance FOLDER`.

Exit status: 0 if each difference has a known reason and no fault was found, else 1. Without the folder, a message is
printed and the status is 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import trio

from .compare import Difference, differences, events_disagree, faults
from .corpus import Case, read_corpus
from .cuts import cuts_of
from .exchange import CallRecord, exchange
from .nulls import compare_nulls
from .outcome import outcome_of
from .pairs import compare_pairs
from .reference import reference_of
from .report import Judged, difference_lines, judge, tables
from .robust import BUDGET, Ledger, damage_all, socket_sample
from .spellings import spelling_faults
from .tokens import token_faults

SEED = 20_250_601
SECONDS = 600.0
"""The timeout of the whole exchange, in seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. Returns the exit status."""
    options = _options(arguments)
    folder = Path(options.folder) if options.folder else None
    if folder is None or not folder.is_dir():
        print(f"conformance: skipped, there is no folder {options.folder!r} with recorded answers")
        return 0
    cases = read_corpus(folder, options.name)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        # Worker processes read the damaged bodies, while this process uses its sockets.
        damaged = beside.submit(damage_all, cases, budget=options.budget) if options.robust else None
        judged = _judge_all(cases, options.seed)
        _say(began, f"{len(cases)} answers, whole and cut")
        broken = [] if damaged is None else _check_spellings_and_pairs(cases, began)
        if not options.name:
            count, differing = token_faults(folder)
            broken += differing
            _say(began, f"{count} answers with tokens, in pieces and whole")
        if damaged is not None:
            sample = trio.run(partial(socket_sample, cases, options.seed))
            broken += _check_damage(damaged.result(), sample, began)
    print("\n".join(["", *tables(judged), *difference_lines(judged), *broken]))
    unargued = sum(one.verdict == "unargued" for one in judged)
    counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in ("identical", "argued", "unargued")}
    print(f"\nconformance: {counts}, {len(broken)} broken promises")
    return 1 if unargued or broken else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("folder", nargs="?", default="", help="the folder of recorded answers")
    parser.add_argument("--name", action="append", default=[], help="only answers whose name holds this")
    parser.add_argument("--seed", type=int, default=SEED, help="of cuts, damage and samples")
    parser.add_argument("--no-robust", dest="robust", action="store_false", help="leave damaged bodies out")
    parser.add_argument(
        "--budget", type=int, default=BUDGET, help="bytes of damaged variants per body and kind; 0: all"
    )
    return parser.parse_args(arguments)


def _say(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)


def _judge_all(cases: Sequence[Case], seed: int) -> list[Judged]:
    plan = [(case, cut) for case in cases for cut in cuts_of(case.name, len(case.body), seed)]

    async def bounded() -> list[CallRecord]:
        with trio.fail_after(SECONDS):
            return await exchange(plan)

    records_by_case: dict[int, list[CallRecord]] = {}
    for record in trio.run(bounded):
        records_by_case.setdefault(id(record.case), []).append(record)
    return [_judge(case, records_by_case[id(case)]) for case in cases]


def _judge(case: Case, records: Sequence[CallRecord]) -> Judged:
    whole = records[0]
    found = [fault for record in records for fault in faults(record, whole)]
    if whole.completion is None:
        return judge(case, (), found)
    parts = differences(case, outcome_of(whole.completion, case.dialect, case.text), reference_of(case))
    parts += [Difference(case, "events", said, "one content") for said in events_disagree(whole)]
    return judge(case, parts, found)


def _check_spellings_and_pairs(cases: Sequence[Case], began: float) -> list[str]:
    broken = [fault for case in cases for fault in spelling_faults(case)]
    _say(began, "the same answers, spelled otherwise")
    pairs = compare_pairs(cases)
    _say(
        began,
        f"{pairs.restated} streams restated unstreamed ({pairs.not_plain} not plain enough), "
        f"{pairs.recorded} pairs of recordings",
    )
    nulls = compare_nulls(cases)
    _say(began, f"{nulls.restated} answers with {nulls.nulls} null members added ({nulls.not_read} not readable)")
    return broken + pairs.faults + nulls.faults


def _check_damage(ledger: Ledger, sample: Ledger, began: float) -> list[str]:
    ledger.add(sample)
    _say(
        began,
        f"{ledger.variants} damaged bodies: {ledger.responses} responses, {ledger.errors} errors, "
        f"{len(ledger.faults)} of neither kind",
    )
    return ledger.faults


if __name__ == "__main__":
    sys.exit(main())
