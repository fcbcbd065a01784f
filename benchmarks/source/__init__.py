"""The load source: a small epoll server in C, because a Python server is slower than the measured clients."""
