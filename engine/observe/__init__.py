"""What an engine shows of itself: the observer, recordings, the monitor and the figures. All are off by default."""
