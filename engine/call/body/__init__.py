"""The readers of a response body, one per kind: `stream`, `answer` and `error`. `Envelope` chooses by the first bytes.

Each is a `Body` (`base`) with `feed`, `end` and `fail`, and reports to its attempt.
"""

from .answer import Envelope as Envelope
from .base import Body as Body
from .base import BodyOwner as BodyOwner
from .base import content_coding as content_coding
from .error import ErrorBody as ErrorBody
from .stream import StreamBody as StreamBody
