"""A local endpoint for harnesses and other languages: `open_gateway`, and `manystream serve`.

A client speaks OpenAI Chat, OpenAI Responses, Anthropic Messages or Gemini to it, and gets the engine's quotas, queue,
routes, budgets, retries and recordings. Nothing is translated: a request goes on in the dialect in which it came, with
its body as it is but for the model's name and what a slot adds, and the answer's bytes go back as they came.

`gateway` has the server and its slots. `forwarding` is one request: it holds the bytes of an attempt until the engine
makes no other one, and then sends them as they come. While a client does not read, its call is paused.
`websocket` makes each turn of a client's WebSocket such a request. `dialects` knows the paths, keys and errors of the
dialects, `bodies` changes a body, and `trace` keeps the calls of a slot.

Known to be ugly: the dialect writes the head of a forwarded request from a placeholder, whose body is then replaced
(`engine/request/forwarded.py`).
"""

from .gateway import Gateway as Gateway
from .gateway import Slot as Slot
from .gateway import open_gateway as open_gateway
from .trace import Trace as Trace
from .trace import TracedCall as TracedCall
