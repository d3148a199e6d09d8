"""Prompts and scoring rules, one family a file; nothing here knows a model."""
