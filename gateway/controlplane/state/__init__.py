"""State that survives a restart: `keeper` decides when to read and write, `text` is the format, `file` the
disk.

`Snapshot.saved` decides what to keep, and `Snapshot.configured` restores it. Nothing is imported here.
"""
