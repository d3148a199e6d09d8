"""Where models come from, how they are loaded, and where their attention heads are."""
