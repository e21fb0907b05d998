"""Pages of the documentation site that are generated while it is built, so that none can go stale."""
