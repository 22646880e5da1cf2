"""Episodes: files that are whole or absent, the replay, and sampling from it."""
