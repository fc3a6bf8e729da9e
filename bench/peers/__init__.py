"""The configurations of the peers, and two peers in Python. No code of the bench itself is here."""
