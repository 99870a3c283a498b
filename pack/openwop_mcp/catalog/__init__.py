"""What servers, node types and workflows offer as tools: pages kept as they came, and all that is derived from them."""
