"""Core decides: values in, values out.

Nothing here performs I/O, reads a clock, draws a random number or writes a log: time, requests in flight and
random bits are parameters. Values are immutable and compare by content. Core knows the contract of a dialect
(`core.dialect`) and no dialect. Expected refusals are values, never exceptions.
"""
