"""The dialect, the profile and the provider as values; the known ones; and which provider a request goes to."""
