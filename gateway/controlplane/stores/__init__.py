"""Stores in which replicas keep what they agree on. They know nothing of versions, records or replicas."""
