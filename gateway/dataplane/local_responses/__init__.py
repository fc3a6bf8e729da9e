"""Responses that the gateway makes itself: for what failure, with what reason, as what bytes.

Bodies after routing come from the dialect, through `core.decision.local_responses`. Here are values and
tables only; the exchange and the client connection write them.
"""
