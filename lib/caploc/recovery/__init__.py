"""From masks and scores to the effect of every head."""
