"""What calls may use: amounts are reserved before an attempt is sent, and settled when it has ended."""
