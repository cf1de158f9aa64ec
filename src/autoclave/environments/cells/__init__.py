"""Code around test suites inside of their cells, sent along as text. Nothing here is imported by graders."""
