"""What a person reads: tables, plots, the report."""
