"""A server of the Model Context Protocol whose tools are reversible actions. Needs the extra `mcp`."""
