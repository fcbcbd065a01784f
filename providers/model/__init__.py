"""The values that programs use, their rules, and views of them: messages, requests, events, responses, rows. No I/O."""
