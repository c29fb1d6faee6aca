"""Values of users as bytes, digests and own copies: what the stores, the surface and the simulator share."""
