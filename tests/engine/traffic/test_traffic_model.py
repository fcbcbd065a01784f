"""A few servers of `benchmarks.traffic_model`, as a quick check of the rules before the whole set is run."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.limit_forms import FORMS, MODELLED_FORMS
from benchmarks.modelled import inference_server, quota_run, quota_server, replicas
from benchmarks.modelled.form_run import FormRun
from benchmarks.traffic_model import jain
from manystream.engine.traffic.routing.options import Balance, Hedge

SERVERS = range(1000, 1020)


def test_random_servers_with_quotas_are_used_and_seldom_refuse() -> None:
    used, refused = list[float](), list[float]()
    for seed in SERVERS:
        plan = quota_server.draw(seed)
        outcome, best = quota_run.run(plan)[0], quota_run.best(plan)
        used.append(min(1.0, outcome.served / best.served))
        refused.append(outcome.refused / outcome.sent)
    assert fmean(used) >= 0.92
    assert fmean(refused) <= 0.08


@pytest.mark.parametrize("round_trip", [0.002, 0.02, 0.1])
def test_2000_calls_without_reported_limits_are_seldom_refused(round_trip: float) -> None:
    """Gemini has no headers about limits: only its refusals tell of them. Its bucket holds 600 calls."""
    form = FORMS["gemini"]
    run = FormRun(form, 2000, round_trip)
    assert run.run().refused <= 0.1
    assert run.used >= 0.95


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("form", "calls", "used"), [("anthropic, all sizes", 1200, 0.94), ("openai by the second", 1500, 0.95)]
)
def test_limits_that_headers_report_are_used(form: str, calls: int, used: float, streamed: bool) -> None:
    """The headers of an unstreamed response come with its end: they describe the time of its request."""
    run = FormRun(MODELLED_FORMS[form], calls, 0.02, streamed=streamed)
    assert run.run().refused <= 0.05
    assert run.used >= used


def test_two_processes_share_a_key() -> None:
    plan = next(plan for seed in SERVERS if (plan := quota_server.draw(seed)).calls_per_second > 3)
    one, other = quota_run.run(plan, processes=2)
    assert 0.5 < one.served / other.served < 2
    assert one.served + other.served > 0.8 * quota_run.best(plan).served


@pytest.mark.parametrize("streamed", [True, False])
def test_a_server_that_queues_inside_is_filled_but_not_flooded(streamed: bool) -> None:
    """Without streams, nothing but the length of answers shows what waits inside."""
    plan = inference_server.draw(1007)
    assert plan.kind == "batch"
    outcome = inference_server.measure(plan, streamed=streamed)
    assert outcome.throughput > 0.9
    assert outcome.first_token < (5 if streamed else 20)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_server_that_reports_its_queue_is_filled(streamed: bool) -> None:
    plans = [inference_server.draw(seed) for seed in (1007, 1019)]
    outcomes = [inference_server.measure(plan, streamed=streamed, reports=True) for plan in plans]
    assert fmean(outcome.throughput for outcome in outcomes) >= 0.97


def test_four_clients_share_a_server_that_reports_its_queue() -> None:
    """Each begins three seconds after the one before it, and none knows of another."""
    plan = next(plan for seed in SERVERS if (plan := inference_server.draw(seed)).kind == "batch")
    four = inference_server.InferenceServer(plan, reports=True, clients=4)
    one = inference_server.InferenceServer(plan, reports=True)
    four.run()
    one.run()
    assert jain([float(done) for done in four.done_by]) >= 0.9
    assert four.done >= 0.95 * one.done


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("base", "each"), [(0.004, 0.0001), (0.001, 0.0005)])
def test_a_server_whose_steps_grow_with_their_calls_is_used(streamed: bool, base: float, each: float) -> None:
    """A small model on a CPU. Each call makes the step of all longer, so that late tokens are not tokens that wait."""
    plan = replace(
        inference_server.draw(1001),
        kind="batch",
        base=inference_server.TOKENS_PER_STEP * base,
        each=inference_server.TOKENS_PER_STEP * each,
        prefill=1e-6,
        room=128 * 150.0,
        queue=10**9,
        slots=10**9,
        input_tokens=50.0,
        output_tokens=100.0,
        round_trip=0.002,
    )
    learned = inference_server.InferenceServer(plan, streamed=streamed)
    full = inference_server.InferenceServer(plan, fixed=128, streamed=streamed)
    learned.run()
    full.run()
    assert learned.done >= 0.9 * full.done


def test_three_replicas_of_which_one_is_slow_and_one_fails() -> None:
    run = replicas.ReplicaRun(replicas.THREE, Balance.FASTEST).run()
    assert run.goodput >= 0.97
    assert run.calls == len(run.times)


def test_a_hedge_cuts_the_tail() -> None:
    plain = replicas.ReplicaRun(replicas.TAIL, Balance.FASTEST).run()
    hedged = replicas.ReplicaRun(replicas.TAIL, Balance.FASTEST, Hedge()).run()
    assert plain.percentile(0.99) > 5 * hedged.percentile(0.99)
    assert hedged.attempts <= 1.05 * hedged.calls
