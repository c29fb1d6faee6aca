"""The replica service of a host: it runs replica servers for the drivers that ask."""
