"""The routes of the service, one file per noun. Each checks who asks, and hands on."""
