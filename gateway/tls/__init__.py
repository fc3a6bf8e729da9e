"""TLS: certificates as files and values, and what OpenSSL is told about them.

It knows no configuration file, no event loop and no request. `settings` checks files with it, so what was
checked is what runs.
"""
