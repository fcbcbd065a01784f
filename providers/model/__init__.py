"""The values that programs use: requests, messages, events, responses, usage and errors. No dialect, no I/O."""
