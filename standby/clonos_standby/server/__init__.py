"""The replica server: it supervises all replicas of a query on one host, and answers for what the host holds."""
