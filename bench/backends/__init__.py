"""The backends of the bench: their configuration, and the one that takes bodies."""
