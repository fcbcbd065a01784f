"""The kernel's timer: its descriptor is readable after its time, and only then."""

import ctypes
import os
import select
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from manystream.transport import kernel_timer
from manystream.transport.kernel_timer import KernelTimer, make_kernel_timer

ENOUGH = 30.0
"""Seconds; a test that waits for it has failed."""


@pytest.fixture
def timer() -> Iterator[KernelTimer]:
    timer = make_kernel_timer()
    if timer is None:
        pytest.skip("this system has no timerfd")
    yield timer
    timer.close()


def readable(timer: KernelTimer, seconds: float = 0.0) -> bool:
    return bool(select.select([timer], [], [], seconds)[0])


def test_it_is_readable_after_its_time_and_stays_so(timer: KernelTimer) -> None:
    assert not readable(timer)
    timer.start(0.0002)
    assert readable(timer, ENOUGH)
    assert readable(timer)


@pytest.mark.parametrize("seconds", [0.0, 1e-12, 5e-5, 1.0])
def test_every_time_up_to_a_second_expires(timer: KernelTimer, seconds: float) -> None:
    timer.start(seconds)
    assert readable(timer, ENOUGH)


def test_a_stop_and_a_new_start_forget_the_expiration(timer: KernelTimer) -> None:
    for forget in (timer.stop, lambda: timer.start(0.9)):
        timer.start(1e-6)
        assert readable(timer, ENOUGH)
        forget()
        assert not readable(timer)


def test_it_closes_its_descriptor_once(timer: KernelTimer) -> None:
    descriptor = timer.fileno()
    timer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    timer.close()
    assert timer.fileno() == -1


def test_a_forgotten_timer_closes_its_descriptor() -> None:
    timer = make_kernel_timer()
    if timer is None:
        pytest.skip("this system has no timerfd")
    descriptor = timer.fileno()
    del timer
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


class Refusing:
    """A C library whose kernel refuses the call, as in a sandbox."""

    def timerfd_create(self, clock: int, flags: int) -> int:
        return -1


@pytest.mark.parametrize("library", [Refusing(), object()], ids=["refused", "no such function"])
def test_a_system_that_refuses_one_has_none(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    def open_library(name: None) -> object:
        return library

    monkeypatch.setattr(kernel_timer.ctypes, "PyDLL", open_library)
    assert make_kernel_timer() is None


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timer, "sys", SimpleNamespace(platform="darwin"))
    assert make_kernel_timer() is None


# --- the kernel's timer ---
def test_the_kernel_gets_nanoseconds_below_a_second() -> None:
    asked: list[tuple[int, int, list[int], object]] = []

    def set_time(descriptor: int, flags: int, address: ctypes.c_void_p, old: object) -> None:
        assert address.value is not None
        asked.append((descriptor, flags, list((ctypes.c_long * 4).from_address(address.value)), old))

    library: Any = SimpleNamespace(timerfd_settime=set_time)
    timer = KernelTimer(-1, library)
    for seconds in (0.25, 0.0, 1e-12, 1.0, 0.9999999999):
        timer.start(seconds)
    timer.stop()
    nanoseconds = [250_000_000, 1, 1, 999_999_999, 999_999_999, 0]
    assert asked == [(-1, 0, [0, 0, 0, each], None) for each in nanoseconds]
    arguments: Any = set_time
    assert arguments.argtypes == (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def test_the_kernel_s_timer_does_not_block_and_is_not_inherited() -> None:
    timer = make_kernel_timer()
    if timer is None:
        pytest.skip("this system has no timerfd")
    assert (os.get_blocking(timer.fileno()), os.get_inheritable(timer.fileno())) == (False, False)
    with pytest.raises(BlockingIOError):
        os.read(timer.fileno(), 8)
    timer.close()
