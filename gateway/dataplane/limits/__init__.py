"""Limits for clients: admission, rates, requests in flight, retries, load shedding.

The keys are declared in `core.fleet` (`limits`, `admission`). Limits of single messages are enforced by their
readers in `http1`; requests that wait for a backend belong to `backends.queue`.
"""
