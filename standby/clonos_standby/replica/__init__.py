"""The replica process: it runs one instance of one operator or sink."""
