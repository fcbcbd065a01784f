"""httpx2's synchronous client, one thread per stream or worker, with a hand-written loop over server-sent events."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx2
import orjson

from .common import LAST_LINES, TEXT_OF, Lines, Recorder, Task, read_task

HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


def client_for(task: Task) -> httpx2.Client:
    """Return a client over its own transport, with no limit of connections."""
    return httpx2.Client(limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None), timeout=60)


def stream(client: httpx2.Client, task: Task, recorder: Recorder) -> None:
    """Read one stream."""
    text_of, last = TEXT_OF[task.dialect], LAST_LINES[task.dialect]
    lines, ended = Lines(), False
    with client.stream("POST", task.base_url + task.path, content=task.body, headers=HEADERS) as response:
        for chunk in response.iter_raw():
            for line in lines.feed(chunk):
                if line.startswith(b"data: {"):
                    text = text_of(orjson.loads(line[6:]))
                    if text:
                        recorder.record(text)
                elif line == last:
                    ended = True
    if ended:
        recorder.complete()


def answers(client: httpx2.Client, task: Task, recorder: Recorder) -> None:
    """Run one of the workers that share the unstreamed requests."""
    for _ in range(task.events // task.streams):
        response = client.post(task.base_url + task.path, content=task.body, headers=HEADERS)
        orjson.loads(response.content)
        recorder.complete()


def main(client_for: Callable[[Task], httpx2.Client] = client_for) -> None:
    """Run the task of the command line over the client that `client_for` makes."""
    task = read_task()
    work = answers if task.mode == "answer" else stream
    client = client_for(task)
    warm = task.warm_up()
    work(client, warm, Recorder(warm))
    recorder = Recorder(task)

    def one() -> None:
        try:
            work(client, task, recorder)
        except (httpx2.HTTPError, OSError) as error:
            recorder.fail(error)

    threads = [threading.Thread(target=one) for _ in range(task.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.report()


if __name__ == "__main__":
    main()
