"""Pages of the documentation site that are made while it is built, so that none can go stale."""
