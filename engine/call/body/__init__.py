"""The readers of a response body, one per kind: `stream`, `answer` and `error`. `envelope` chooses by the first bytes.

Each is a `Body` (`base`) with `feed`, `end` and `fail`, and reports to its attempt.
"""

from .base import Body as Body
from .base import BodyOwner as BodyOwner
from .base import content_coding as content_coding
from .envelope import Envelope as Envelope
from .error import ErrorBody as ErrorBody
from .stream import StreamBody as StreamBody
