"""The base of all exceptions of this library, and the error for a value that a program gave."""

from __future__ import annotations


class ManystreamError(Exception):
    """The base of every exception that this library raises. The simulator's exceptions do not derive from it."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error as it is. By default Python calls `__init__` again, with the message alone."""
        slots = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        state = self.__dict__ | {name: getattr(self, name) for name in slots}
        return _restored, (type(self), self.args), state


def _restored(kind: type[ManystreamError], arguments: tuple[object, ...]) -> ManystreamError:
    return kind.__new__(kind, *arguments)


class InvalidRequestError(ManystreamError, ValueError):
    """A request that cannot be sent. Raised before any byte is sent.

    field: the field of the request that must be corrected, such as `messages[0].content`.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
