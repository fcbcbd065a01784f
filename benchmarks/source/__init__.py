"""The load source: a small epoll server in C, because a Python one cannot outrun the clients it measures."""
