"""The limits of one key: reported, declared and learned ones, and how many calls run at a time.

`LimiterState` combines the pure machines and a fair queue; `Limiter` owns one with its timer and its log.
"""
