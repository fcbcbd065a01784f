"""When a call is sent, where to, and who pays: pure state machines. They are given the time and keep no timer."""
