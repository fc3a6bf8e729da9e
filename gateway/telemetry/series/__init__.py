"""Declarations of the series of /metrics, one for each; everything else about a series follows from it.

Belongs here: the declarations, in the file of their owner, and the classes to declare with. Does not belong
here: counts (`telemetry.counters`), and the writing of families (`telemetry.exposition`).
"""
