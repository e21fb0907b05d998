"""What a person looks at: the report of a run, the comparison of several, and the style of every plot."""
