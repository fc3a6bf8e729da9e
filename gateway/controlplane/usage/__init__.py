"""The record of usage: `keeper` gathers reports, `database` is the thread and the file, `reading` the record.

Nothing is imported here.
"""
