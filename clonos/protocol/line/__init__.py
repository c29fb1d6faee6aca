"""The line: where every instance begins, what is sent again, what may be forgotten, and what may be shown."""
