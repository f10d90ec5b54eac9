"""Where streams come from and where they go."""
