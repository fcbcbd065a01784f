"""The OpenAI Chat dialect, used by OpenAI and most other servers. Other packages need only `DIALECT`."""

from .dialect import DIALECT as DIALECT
