"""What an engine shows of itself: the observer, recordings and the figures. All are off by default."""
