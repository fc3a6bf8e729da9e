"""Stores in which several replicas keep what they agree on: one interface, and a module for each kind.

A store knows nothing of versions, records or replicas.
"""
