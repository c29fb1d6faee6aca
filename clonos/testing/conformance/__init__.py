"""Checks that an implementation of a port keeps what the port promises. docs/testing.md shows how to run them."""
