"""The series of /metrics: each is declared here once, and everything else about it follows."""
