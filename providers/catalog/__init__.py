"""The known providers as rows of data, providers as configured, and which one a request goes to."""
