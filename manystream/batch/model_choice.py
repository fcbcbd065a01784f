"""The rules that select the model of a line. They are values, so that they can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ModelChoice:
    """The model of each line.

    provider: the provider's name, which the request's model begins with.
    model: the model for all lines, whatever they name; None: the model that the line names.
    default: the model of a line that names none; None: such a line is refused.
    """

    provider: str
    model: str | None = None
    default: str | None = None

    def __call__(self, named: str | None) -> str | None:
        """Return the request's model for a line that names this model, or None if there is none."""
        model = self.model or named or self.default
        return f"{self.provider}/{model}" if model is not None else None


@dataclass(slots=True, frozen=True)
class OneModel:
    """The same model for each line, whatever it names, such as a route."""

    name: str

    def __call__(self, named: str | None) -> str:
        """Return the request's model."""
        return self.name
