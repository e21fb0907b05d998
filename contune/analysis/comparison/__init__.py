"""Runs side by side on one page: what they reached, how they differ, how they got there."""
