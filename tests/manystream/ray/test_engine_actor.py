"""An engine as an actor: its calls, and its errors in another process."""

import pickle

import pytest

import manystream as ms
from manystream.ray import EngineActor


def test_an_engine_actor_makes_calls(provider: ms.Provider) -> None:
    actor = EngineActor([provider])
    request = ms.Request("sim/sim-text", "hi")
    response = actor.request(request)
    events = list(actor.stream(request))
    results = dict(actor.map(("ab"[number], request) for number in range(2)))
    actor.close()
    assert response.text
    assert "".join(event.text for event in events if isinstance(event, ms.TextDelta)) == response.text
    assert {key: completion.success for key, completion in results.items()} == {"a": True, "b": True}
    assert pickle.loads(pickle.dumps((response, events, results))) == (response, events, results)
    assert "key" not in repr(actor)


ERROR = [name for name in dir(ms.ProviderError) if not name.startswith("_") and not hasattr(Exception, name)]


def test_errors_reach_another_process_as_they_are(provider: ms.Provider) -> None:
    actor = EngineActor([provider])
    request = ms.Request("sim/sim-text", "simulate: fail=400")
    with pytest.raises(ms.ProviderError) as caught:
        actor.request(request)
    with pytest.raises(ms.InvalidRequestError) as invalid:
        actor.request(ms.Request("sim/", "hi"))
    ((_, completion),) = list(actor.map([request]))
    actor.close()
    for error in (caught.value, invalid.value, completion.error):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    again = pickle.loads(pickle.dumps(caught.value))
    assert [getattr(again, name) for name in ERROR] == [getattr(caught.value, name) for name in ERROR]
    assert (again.http_status, again.category, again.provider) == (400, ms.ErrorCategory.INVALID_ARG, "sim")
