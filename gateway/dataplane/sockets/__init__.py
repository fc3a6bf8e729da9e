"""Helpers for one socket or transport that client and backend connections share.

They know nothing of HTTP, of requests or of each other.
"""
