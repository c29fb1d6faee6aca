"""What users build queries with: causal streams, their writer, and the handle of a running query."""
