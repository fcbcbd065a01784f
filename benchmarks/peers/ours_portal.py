"""manystream behind a portal.

The engine and the callbacks run in a thread of their own. The main thread starts the calls.
"""

from __future__ import annotations

import manystream as ms
from manystream.portal import open_portal

from .common import Recorder, read_task
from .ours import provider_for, request_for


def main() -> None:
    task = read_task()
    recorder = Recorder(task)
    record, request = recorder.record, request_for(task)

    def on_event(event: ms.Event) -> None:
        if type(event) is ms.TextDelta:
            record(event.text)

    def on_completion(completion: ms.Completion) -> None:
        if completion.success:
            recorder.complete()
        else:
            recorder.fail(completion.error)

    with open_portal([provider_for(task)], retry=ms.Retry(max_attempts=1)) as portal:
        calls = [portal.start_stream(request, on_event, on_completion) for _ in range(task.streams)]
        for call in calls:
            call.wait()
        recorder.report()


if __name__ == "__main__":
    main()
