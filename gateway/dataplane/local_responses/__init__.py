"""Responses that the gateway makes itself: for which failure, with which reason, as which bytes.

Values and tables only. After routing the dialect writes the content (`core.decision.local_responses`).
"""
