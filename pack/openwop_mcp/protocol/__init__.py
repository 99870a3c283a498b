"""MCP on the wire, without I/O: messages, headers, event streams and revisions. Knows no socket and no Temporal."""
