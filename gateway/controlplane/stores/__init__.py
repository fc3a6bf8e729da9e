"""Where several replicas keep what they agree on: one interface, and one file for each kind of store.

A store knows nothing of versions, documents or replicas.
"""
