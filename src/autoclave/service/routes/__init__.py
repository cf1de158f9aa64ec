"""Routes of the service, one file per resource."""
