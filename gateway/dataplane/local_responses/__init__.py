"""Responses that the gateway makes itself: for what failure, with what reason, as what bytes.

It holds values and tables only. The exchange and the client connection write them.
"""
