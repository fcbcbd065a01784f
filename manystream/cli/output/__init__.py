"""What a command prints: standard streams that take any text, styles and tables on a terminal, and one-line errors."""
