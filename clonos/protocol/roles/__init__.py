"""Roles: what one participant does. Events go in, actions come out; production and simulator carry the actions out."""
