"""libcurl's multi interface (pycurl): socket_action and epoll, a write callback per transfer, orjson."""

from __future__ import annotations

import select
import time

import orjson
import pycurl

from .common import TEXT_OF, Lines, Recorder, Task, read_task

HEADERS = ["content-type: application/json", "authorization: Bearer key", "expect:"]


class Loop:
    """One multi handle with epoll, as libcurl's documentation of socket_action describes."""

    def __init__(self) -> None:
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self.watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self.set_timer)
        self.epoll = select.epoll()
        self.watched: set[int] = set()
        self.deadline: float | None = None

    def watch(self, what: int, socket: int, multi: object, data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self.watched.discard(socket)
            try:
                self.epoll.unregister(socket)
            except OSError:
                pass  # already closed
            return
        wanted = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        if socket in self.watched:
            self.epoll.modify(socket, wanted)
        else:
            self.watched.add(socket)
            self.epoll.register(socket, wanted)

    def set_timer(self, milliseconds: int) -> None:
        self.deadline = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000

    def turn(self) -> None:
        """Wait once, and let libcurl handle the ready sockets."""
        action = self.multi.socket_action
        wait = 1.0 if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        for socket, ready in self.epoll.poll(wait, 512):
            select_bits = (pycurl.CSELECT_IN if ready & ~select.EPOLLOUT else 0) | (
                pycurl.CSELECT_OUT if ready & select.EPOLLOUT else 0
            )
            action(socket, select_bits)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.deadline = None
            action(pycurl.SOCKET_TIMEOUT, 0)


def transfer(task: Task) -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, task.base_url + task.path)
    curl.setopt(pycurl.POST, 1)
    curl.setopt(pycurl.POSTFIELDS, task.body)
    curl.setopt(pycurl.HTTPHEADER, HEADERS)
    curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    if task.ca:
        curl.setopt(pycurl.CAINFO, task.ca)
    return curl


def stream(task: Task, recorder: Recorder) -> pycurl.Curl:
    text_of, lines = TEXT_OF[task.dialect], Lines()

    def write(chunk: bytes) -> None:
        for line in lines.feed(chunk):
            if line.startswith(b"data: {"):
                text = text_of(orjson.loads(line[6:]))
                if text:
                    recorder.record(text)

    curl = transfer(task)
    curl.setopt(pycurl.WRITEFUNCTION, write)
    return curl


def answer(task: Task, recorder: Recorder) -> pycurl.Curl:
    curl = transfer(task)
    pieces: list[bytes] = []

    def write(chunk: bytes) -> None:
        pieces.append(chunk)
        if chunk.endswith(b"}"):
            orjson.loads(b"".join(pieces))
            pieces.clear()

    curl.setopt(pycurl.WRITEFUNCTION, write)
    return curl


def main() -> None:
    task = read_task()
    loop = Loop()
    recorder = Recorder(task)
    make = answer if task.mode == "answer" else stream
    again = task.events - task.streams if task.mode == "answer" else 0
    transfers = [make(task, recorder) for _ in range(task.streams)]
    for curl in transfers:
        loop.multi.add_handle(curl)
    loop.multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
    running = len(transfers)
    while running:
        loop.turn()
        _, done, failed = loop.multi.info_read(1000)
        for curl in done:
            recorder.complete()
            loop.multi.remove_handle(curl)
            if again:
                again -= 1
                loop.multi.add_handle(curl)
            else:
                running -= 1
        for curl, _, message in failed:
            recorder.fail(message)
            loop.multi.remove_handle(curl)
            running -= 1
    recorder.report()


if __name__ == "__main__":
    main()
