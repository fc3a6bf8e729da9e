"""The series of /metrics: each is declared here once, and everything else about it follows.

Belongs here: one declaration for each series, in the file of its owner, and how they are declared. Does not
belong here: counts (`telemetry.counters`), and how a family is written (`telemetry.exposition`).
"""
