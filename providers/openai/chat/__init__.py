"""The OpenAI Chat dialect, spoken by OpenAI and by most other servers: `DIALECT` is its one instance."""

from .dialect import DIALECT

__all__ = ["DIALECT"]
