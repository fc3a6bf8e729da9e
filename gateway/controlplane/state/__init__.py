"""What survives a restart: `keeper` decides when to read and write, `text` is the format, `file` is the disk.

Nothing is imported here. Nothing in this folder decides what is offered: `Snapshot.saved` says what to keep,
and `Snapshot.configured` takes it back.
"""
