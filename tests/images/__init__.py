"""Programs suspended as images of their processes."""
