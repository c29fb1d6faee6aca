"""What a user's function sees: `ctx`, `GroupState`, state variables, rows and frames."""
