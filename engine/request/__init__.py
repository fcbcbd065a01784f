"""A request → the bytes of its attempts: provider and key, the wire body, the head, and the limits on its size.

Also what every error and record needs: the redaction of secrets.
"""
