"""What servers report about their limits, and how they charge a request, as rows of data."""
