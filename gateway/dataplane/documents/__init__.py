"""Discovery documents, and other responses that are read whole before the client gets them.

`buffered` collects a response and has the dialect rewrite it, `rewrite_cache` caches the result, and `cached`
has the originals for the time when no backend can be reached.
"""
