"""Usage: which client asked for which version of which service, how often, and what would happen to it.

Values in, values out. `telemetry.usage` counts, `controlplane.usage` keeps; neither is known here.
"""
