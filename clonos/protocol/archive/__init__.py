"""What is kept of epochs that are over, so that what instances did in them can be repeated later."""
