"""State that survives a restart: `keeper` decides when to read and write, `text` is the format, `file` the
disk.

Nothing is imported here. Nothing in this room decides what is offered: `Snapshot.saved` selects what to keep,
and `Snapshot.configured` restores it.
"""
