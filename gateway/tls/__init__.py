"""TLS: certificate files and OpenSSL contexts, for listeners and for backends.

    values       the TLS settings; imports neither `ssl` nor `cryptography`, so all of `settings` may
    certificate  reads files of certificates and keys, and explains errors in them
    server       the certificates of a listener, which may change
    client       the contexts for backends, and the reasons of failed handshakes

What belongs here: all that reads a certificate or makes a context. `settings` checks files with it, so the
checked files are those that run. What does not: connections (`dataplane`, `admin`), and when files are read
again (`controlplane.certificate_watch`, `workers.worker_parts`).
"""
