"""A tkinter window with a prompt and a streamed answer. The button "Stop" cancels the answer.

    python examples/tkinter_window.py                              simulated
    python examples/tkinter_window.py --model claude-sonnet-4-5    a real model, with its key
    python examples/tkinter_window.py --no-window                  without a display: prints one answer

The engine is a guest of Tk's main loop (see guest.py). Its callbacks run on Tk's thread and may change widgets.
"""

from __future__ import annotations

import argparse
import tkinter
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from guest import Guest
from setting import Setting, add_arguments, open_setting

import manystream as ms


class TkLoop:
    """Tk's main loop as a host of trio.

    root: a window, or `tkinter.Tcl()` without a display.
    """

    def __init__(self, root: tkinter.Tk) -> None:
        self.root = root
        self._soon: deque[Callable[[], object]] = deque()
        self._run_next = root.register(self._run_one)

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Run a callback on Tk's thread. Any thread may call it: tkinter passes a Tcl command to Tk's thread."""
        self._soon.append(callback)
        self.root.tk.call("after", 0, self._run_next)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a callback after the window's own events. Call it on Tk's thread only."""
        self._soon.append(callback)
        # "after 0" alone would run before Tk handles window events, and the window would freeze while events stream in.
        self.root.tk.call("after", "idle", "after", 0, self._run_next)

    def _run_one(self) -> None:
        self._soon.popleft()()

    def run(self) -> None:
        """Run Tk's main loop until `stop` is called."""
        self.root.tk.mainloop(-1)  # -1: runs without a window, too

    def stop(self) -> None:
        """End `run`."""
        self.root.tk.quit()


class Answer:
    """One answer at a time: starts it, shows it, stops it.

    show: is called with each piece of text, on Tk's thread.
    on_state: is called with a text that describes the state.
    """

    def __init__(self, model: str, show: Callable[[str], None], on_state: Callable[[str], None]) -> None:
        self.model = model
        self.show = show
        self.on_state = on_state
        self.engine: ms.Engine | None = None
        self.call: ms.Call | None = None

    def ask(self, prompt: str) -> None:
        """Start an answer. It replaces the running one."""
        self.stop()
        if self.engine is not None and prompt.strip():
            request = ms.Request(self.model, [ms.Message.user(prompt)])
            self.call = self.engine.start_stream(request, self._on_event, self._on_completion)
            self.on_state("answering")

    def stop(self) -> None:
        """Cancel the running answer."""
        if self.call is not None:
            self.call.cancel()

    def _on_event(self, event: ms.Event) -> None:
        if isinstance(event, ms.TextDelta):
            self.show(event.text)

    def _on_completion(self, completion: ms.Completion) -> None:
        self.show("\n\n")
        self.on_state("done" if completion.error is None else f"{completion.error.category}")


class Window:
    """The widgets of the window."""

    def __init__(self, root: tkinter.Tk, model: str) -> None:
        root.title("manystream")
        self.prompt = tkinter.Entry(root)
        self.state = tkinter.Label(root, text="opening")
        self.text = tkinter.Text(root, wrap="word", height=20)
        self.answer = Answer(model, self.show, self.show_state)
        ask = tkinter.Button(root, text="Ask", command=self.ask)
        stop = tkinter.Button(root, text="Stop", command=self.answer.stop)
        self.text.pack(fill="both", expand=True)
        self.prompt.pack(fill="x")
        for widget in (ask, stop, self.state):
            widget.pack(side="left")
        self.prompt.bind("<Return>", lambda _: self.ask())
        self.prompt.insert(0, "Name three rivers.")

    def ask(self) -> None:
        """Ask the question in the entry."""
        self.answer.ask(self.prompt.get())

    def show(self, text: str) -> None:
        """Append text to the answer, and scroll to its end."""
        self.text.insert("end", text)
        self.text.see("end")

    def show_state(self, state: str) -> None:
        """Show the state of the answer."""
        self.state.configure(text=state)

    def on_open(self, engine: ms.Engine) -> None:
        """Enable questions."""
        self.answer.engine = engine
        self.show_state("ready")


def start_guest(loop: TkLoop, providers: Sequence[ms.Provider], on_open: Callable[[ms.Engine], None]) -> Guest:
    """Start the engine on Tk's main loop.

    The engine opens when the loop runs. The loop stops after the engine has closed.
    """
    return Guest(
        providers, on_open, loop.stop, call_soon_threadsafe=loop.call_soon_threadsafe, call_soon=loop.call_soon
    )


def show_window(setting: Setting) -> None:
    """Open the window, and run until the user closes it."""
    root = tkinter.Tk()
    window = Window(root, setting.model)
    loop = TkLoop(root)
    guest = start_guest(loop, setting.providers, window.on_open)
    root.protocol("WM_DELETE_WINDOW", guest.close)  # the engine closes first: its end needs Tk's loop
    try:
        loop.run()
    finally:
        root.destroy()
    guest.check()


def print_answer(setting: Setting) -> None:
    """Print one answer as it streams, without a window. Then end."""
    loop = TkLoop(tkinter.Tcl())

    def on_state(state: str) -> None:
        print(f"[{state}]", flush=True)
        if state != "answering":
            guest.close()

    answer = Answer(setting.model, partial(print, end="", flush=True), on_state)

    def on_open(engine: ms.Engine) -> None:
        answer.engine = engine
        answer.ask("Name three rivers.")

    guest = start_guest(loop, setting.providers, on_open)
    loop.run()
    guest.check()


def main() -> None:
    parser = argparse.ArgumentParser(description="A tkinter window that drives the engine.")
    add_arguments(parser)
    parser.add_argument("--no-window", action="store_true", help="print one answer instead; needs no display")
    arguments = parser.parse_args()
    with open_setting(arguments, "events=40,rate=40") as setting:
        (print_answer if arguments.no_window else show_window)(setting)


if __name__ == "__main__":
    main()
