"""What crosses a process boundary: frames of the conduit, and gRPC services."""
