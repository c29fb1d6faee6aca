"""Past epochs out of a query's archive: repeated at a desk, explained, followed, and run anew with another function."""
