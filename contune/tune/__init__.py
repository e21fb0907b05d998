"""Finding k1 and k2 by short runs that are measured on a validation split; the test split is never looked at."""
