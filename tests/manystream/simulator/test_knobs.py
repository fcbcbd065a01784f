"""The knobs and the options of batches and replicas: their defaults, and the error about a wrong word."""

import math
from dataclasses import fields, replace

import pytest

from manystream.simulator import KnobError, Knobs, combine
from manystream.simulator.inference import BatchModel, read_batch
from manystream.simulator.knobs import READERS, directive_in_model, directive_in_text, read_directive
from manystream.simulator.limit import Limit, read_limit
from manystream.simulator.program import Ending, Program
from manystream.simulator.prompt import APIError
from manystream.simulator.replica import Outage, Replica, ReplicaState, read_replica

FAULTY: list[Knobs] = [
    Knobs(drop=True), Knobs(fail=500), Knobs(cut=0), Knobs(reset=0), Knobs(truncate=0), Knobs(stall=0),
    Knobs(malformed=0), Knobs(error=0),
]  # fmt: skip


@pytest.mark.parametrize("knobs", FAULTY)
def test_a_fault_can_be_left_out(knobs: Knobs) -> None:
    assert knobs.faulty
    assert replace(knobs, events=3, rate=2.0, error_status=501).without_faults() == Knobs(
        events=3, rate=2.0, error_status=501
    )


def test_other_knobs_are_no_faults() -> None:
    harmless = Knobs(
        rate=1.0, delay=1.0, chunk=1, ping=1.0, retry_after=1.0, code="x", error_status=501, times=1, key="k"
    )
    assert not harmless.faulty
    assert harmless.without_faults() == harmless


WRONG_KNOBS: list[tuple[str, str]] = [
    ("kind=x", "kind='x': kind takes one of text, thinking, tools, mixed"),
    ("text=x", "text='x': text takes one of sentences, unicode"),
    ("finish=x", "finish='x': finish takes one of stop, length, content_filter"),
    ("Retry-After=x", "retry_after='x': retry_after takes 0 to 86400 seconds"),
    ("events=", "events='': events takes 0 to 1000000"),
    ("=5",
        "'=5' is not a knob; write name=value, with a name out of: kind, text, events, calls, steps, finish, cached,"
        " redacted, seed, stamp, rate, delay, chunk, ping, fail, retry_after, code, drop, cut, reset, truncate, stall,"
        " silent, cut_bytes, close, largest, lifetime, malformed, error, error_status, times, key"),
]  # fmt: skip


@pytest.mark.parametrize(("directive", "message"), WRONG_KNOBS)
def test_a_wrong_knob_is_told_what_it_takes(directive: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_directive(directive)
    assert str(caught.value) == message


def test_a_directive_may_be_written_freely() -> None:
    assert read_directive(" ,EVENTS=5,\n\tretry-after=1 ,error_status=501,, ") == {
        "events": 5,
        "retry_after": 1.0,
        "error_status": 501,
    }
    assert read_directive("key=a=b code=x=") == {"key": "a=b", "code": "x="}


def test_directives_that_say_nothing_change_nothing() -> None:
    defaults = Knobs(events=3)
    assert combine(defaults) is defaults
    assert combine(defaults, "", " ") is defaults
    assert combine(defaults, "rate=2", "", "rate=3,kind=text") == Knobs(events=3, rate=3.0, kind="text")
    assert combine(Knobs(), "stamp=1", "chunk=0") == Knobs(stamp=True)
    with pytest.raises(KnobError) as caught:
        combine(Knobs(chunk=4), "stamp=1")
    assert str(caught.value) == "stamp and chunk exclude each other: a stamp is made when its event is sent whole"


@pytest.mark.parametrize(
    ("text", "directive"),
    [
        ("simulate:events=1", "events=1"),
        ("\n simulate: a", " a"),
        ("simulate events=1", ""),
        ("Simulate: a", ""),
        ('\t{"simulate": {"events": 1, "key": "k", "stamp": true}}', "events=1,key=k,stamp=True"),
        ('{"simulate": "events=1"}', ""),
        ('{"other": {"events": 1}}', ""),
        ("[]", ""),
    ],
)
def test_a_message_holds_a_directive_at_its_start(text: str, directive: str) -> None:
    assert directive_in_text(text) == directive


@pytest.mark.parametrize(
    ("model", "directive"),
    [
        ("sim", ""),
        ("sim@", ""),
        ("sim-thinking", "kind=thinking,"),
        ("sim-tools@a=b@c", "kind=tools,a=b@c"),
        ("sim-else@a=b", "a=b"),
        ("text@a=b", ""),
        ("similar@a=b", "a=b"),
    ],
)
def test_a_model_holds_a_directive_behind_its_kind(model: str, directive: str) -> None:
    assert directive_in_model(model) == directive


# --- a batch ---


def test_a_batch_has_these_options_by_default() -> None:
    assert BatchModel() == BatchModel(
        step=0.02, per_call=0.0005, prefill=0.00001, kv=100_000, queue=math.inf, status=503
    )
    assert read_batch("") == BatchModel()
    assert read_batch("Per-Call=0,PREFILL=0 step=0 queue=0 kv=0.5 status=400") == BatchModel(
        step=0, per_call=0, prefill=0, kv=0.5, queue=0, status=400
    )
    assert BatchModel(status=599).status == 599
    assert isinstance(read_batch("status=429").status, int)


WRONG_BATCHES: list[tuple[str, str]] = [
    ("step=-1", "batch: step=-1.0: step is a number from 0"),
    ("per-call=-1", "batch: per_call=-1.0: per_call is a number from 0"),
    ("prefill=nan", "batch: prefill=nan: prefill is a number from 0"),
    ("queue=-1", "batch: queue=-1.0: queue is a number from 0"),
    ("kv=0", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("kv=nan", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=399", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=600", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=4.5", "batch: status='4.5': status is a number"),
    ("kv=many", "batch: kv='many': kv is a number"),
    ("x=1",
        "batch: 'x=1' is not an option; write name=value, with a name of: step, per_call, prefill, kv, queue, status"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_BATCHES)
def test_a_wrong_batch_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_batch(text)
    assert str(caught.value) == message


# --- a replica ---


def test_a_replica_has_these_options_by_default() -> None:
    plain = Replica(port=0, speed=1.0, delay=0.0, fail=0.0, status=500, slow=0.0, outages=(), seed=0)
    assert Replica() == read_replica("") == plain
    assert Outage(1, 2) == Outage(1, 2, "503")
    every = Replica(port=1, speed=2, delay=3, fail=1, status=4, slow=1, outages=(Outage(1.5, 2, "close"),), seed=5)
    assert read_replica("port=1, speed=2 delay=3,fail=1\nstatus=4 slow=1 seed=5 outage=1.5-2:close") == every
    assert len(fields(Replica)) == 8


BOUNDS = "replica: speed is a number above 0, delay one from 0, and fail and slow are from 0 to 1"
OUTAGE = "outage is START-END:KIND in seconds; KIND is 503, hang, close"
WRONG_REPLICAS: list[tuple[str, str]] = [
    ("speed=0", BOUNDS),
    ("speed=nan", BOUNDS),
    ("delay=-0.1", BOUNDS),
    ("fail=-0.1", BOUNDS),
    ("fail=1.1", BOUNDS),
    ("slow=-0.1", BOUNDS),
    ("slow=1.1", BOUNDS),
    ("port=1.5", "replica: port='1.5': port is a number"),
    ("seed=x", "replica: seed='x': seed is a number"),
    ("status=", "replica: status='': status is a number"),
    ("slow=x", "replica: slow='x': slow is a number"),
    ("outage=1", f"replica: outage='1': {OUTAGE}"),
    ("outage=1-2:else", f"replica: outage='1-2:else': {OUTAGE}"),
    ("outage=1-2:", f"replica: outage='1-2:': {OUTAGE}"),
    ("outage=x1-2", f"replica: outage='x1-2': {OUTAGE}"),
    ("x=1",
        "replica: 'x=1' is not an option; write name=value, with a name of: port, speed, delay, fail, status, slow,"
        " outage, seed"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_REPLICAS)
def test_a_wrong_replica_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_replica(text)
    assert str(caught.value) == message


def test_an_outage_ends_at_its_end() -> None:
    state = ReplicaState(read_replica("outage=1-2 outage=2-3:hang outage=3-4:close"), 100.0)
    assert state.interrupt(100.999) is None
    for now in (101.0, 101.999):
        with pytest.raises(APIError) as caught:
            state.interrupt(now)
        assert (caught.value.status, caught.value.message) == (503, "")
    hang = Program([b""], ending=Ending.STALL, counted=False)
    closed = Program([b""], ending=Ending.CLOSE, delay=0.0)
    assert [state.interrupt(now) for now in (102.0, 102.999, 103.0, 103.999)] == [hang, hang, closed, closed]
    assert state.interrupt(104.0) is None


def calls(replica: Replica, count: int = 20) -> str:
    """Each call: `x` failed, `s` was slow, `.` was neither."""
    state, found = ReplicaState(replica, 0.0), ""
    for _ in range(count):
        try:
            answered = state.interrupt(0.0) is None
        except APIError as failure:
            found += "x" if (failure.status, failure.message) == (replica.status, "") else "?"
        else:
            slow = state.paced(Program([b""], interval=1.0)).interval > 1.0
            found += "?" if not answered else "s" if slow else "."
    return found


def test_the_seed_decides_which_calls_fail_or_are_slow() -> None:
    assert calls(Replica(fail=1.0, status=418), 3) == "xxx"
    assert calls(Replica(slow=1.0), 3) == "sss"
    assert calls(Replica(), 3) == "..."
    assert calls(Replica(fail=0.3, slow=0.3)) == ".s....x.x....s...x.x"
    assert calls(Replica(fail=0.3, slow=0.3, seed=1)) == "x.x..xx.s.x.xx.ssx.x"


def test_a_slow_answer_takes_twenty_times_as_long() -> None:
    program = Program([b""], interval=1.0, delay=2.0)
    paced = ReplicaState(Replica(slow=1.0, speed=0.5, delay=3.0), 0.0).paced(program)
    assert paced == replace(program, interval=40.0, delay=83.0)
    state = ReplicaState(Replica(), 0.0)
    assert state.paced(program) is program
    assert ReplicaState(Replica(speed=2.0), 0.0).paced(program) == replace(program, interval=0.5, delay=1.0)
    assert ReplicaState(Replica(delay=1.0), 0.0).paced(program) == replace(program, delay=3.0)


# --- a limit ---


def test_a_limits_text_has_what_is_not_the_default() -> None:
    limit = Limit(
        key="a", model="b", server="groq", requests_per_second=1, requests_per_minute=2, requests_per_day=3,
        tokens_per_minute=4, tokens_per_day=5, input_tokens_per_minute=6, output_tokens_per_minute=7.5, concurrent=8,
        bucket=9, by_second=True,
    )  # fmt: skip
    text = (
        "key=a model=b server=groq requests-per-second=1 requests-per-minute=2 requests-per-day=3 tokens-per-minute=4"
        " tokens-per-day=5 input-tokens-per-minute=6 output-tokens-per-minute=7.5 concurrent=8 bucket=9 by-second=1"
    )
    assert limit.text == text
    assert (
        read_limit(text.upper().replace("A MODEL=B SERVER=GROQ", "a model=b server=groq").replace(" ", ", ")) == limit
    )
    assert Limit().text == ""
    assert limit.covers("a", "b")
    assert not limit.covers("a", "c")
    assert not limit.covers("c", "b")


NAMES = (
    "key, model, server, requests_per_second, requests_per_minute, requests_per_day, tokens_per_minute, tokens_per_day,"
    " input_tokens_per_minute, output_tokens_per_minute, concurrent, bucket, by_second"
)
WRONG_LIMITS: list[tuple[str, str]] = [
    ("rpm=6", f"limit: 'rpm=6' is not a limit; write name=value, with a name of: {NAMES}"),
    ("concurrent", f"limit: 'concurrent' is not a limit; write name=value, with a name of: {NAMES}"),
    ("bucket=0", "limit: bucket=0.0: bucket is a number above 0"),
    ("concurrent=0", "limit: concurrent=0: concurrent is a number above 0"),
    ("requests-per-day=inf", "limit: requests_per_day=inf: requests_per_day is a number above 0"),
    ("by-second=2", "limit: by_second='2': by_second is 0 or 1"),
    ("concurrent=1.5", "limit: concurrent='1.5': concurrent is a number"),
    ("tokens-per-day=x", "limit: tokens_per_day='x': tokens_per_day is a number"),
    ("server=x",
        "limit: server='x': server is one of openai, anthropic, gemini, vertex, azure, groq, cerebras, mistral,"
        " deepseek, openrouter, together, fireworks, litellm, vllm, sglang, llama.cpp, tgi"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_LIMITS)
def test_a_wrong_limit_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_limit(text)
    assert str(caught.value) == message


BOUNDS: dict[str, tuple[list[str], list[str]]] = {
    "kind": (["text", "thinking", "tools", "mixed"], ["", "tool"]),
    "text": (["sentences", "unicode"], ["words"]),
    "events": (["0", "1000000"], ["-1", "1000001", "1.5"]),
    "calls": (["0", "1000"], ["-1", "1001"]),
    "steps": (["0", "1000"], ["-1", "1001"]),
    "finish": (["stop", "length", "content_filter"], ["tool_use"]),
    "cached": (["0", "1000000000"], ["-1", "1000000001"]),
    "redacted": (["1", "true", "yes", "0", "false", "no"], ["2"]),
    "seed": (["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
    "stamp": (["1", "0", "TRUE"], ["on"]),
    "rate": (["0", "1000000"], ["-0.1", "1000000.1", "nan"]),
    "delay": (["0", "3600"], ["-0.1", "3600.1"]),
    "chunk": (["0", "1048576"], ["-1", "1048577"]),
    "ping": (["0", "3600"], ["-0.1", "3600.1"]),
    "fail": (["400", "599"], ["399", "600"]),
    "retry_after": (["0", "86400"], ["-0.1", "86400.1"]),
    "code": (["rate_limit_exceeded"], []),
    "drop": (["1", "0"], ["-1"]),
    "cut": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "reset": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "truncate": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "stall": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "malformed": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error_status": (["400", "599"], ["399", "600"]),
    "times": (["0", "1000000"], ["-1", "1000001"]),
    "key": (["run-1"], []),
}
"""Knob → texts that it accepts, and texts that it refuses."""


def test_each_knob_has_these_bounds() -> None:
    for name, (accepted, refused) in BOUNDS.items():
        read, _ = READERS[name]
        for text in accepted:
            read(text)
        for text in refused:
            with pytest.raises((ValueError, KeyError)):
                read(text)


SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def test_a_switch_is_one_of_six_words() -> None:
    assert {text: READERS["drop"][0](text) for text in SWITCHES} == SWITCHES
