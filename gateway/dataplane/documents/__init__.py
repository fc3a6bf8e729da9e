"""Responses that are read whole before the client gets them: discovery documents and refusals.

How a document changes is `rewrite_document` of its dialect. `buffered` collects a response and calls that,
`rewritten` caches what came of it, `known` remembers originals for the time when no backend can be reached.
"""
