"""Responses that are read whole before the client gets them: discovery documents and refusals.

What a document says is a dialect's business. Here it is buffered, rewritten once, and remembered for the time
when no backend can be reached.
"""
