"""The OpenAI Chat dialect, spoken by OpenAI and by most other servers: `DIALECT` is all that others need of it."""

from .dialect import DIALECT as DIALECT
