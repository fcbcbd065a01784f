"""The rules for what a program gives: one row per field, and one error that names the field."""
