"""The peers' configurations, and the two peers that are Python programs. No harness code lives here."""
