"""The routes of the host, one module for each kind of thing: each makes a router out of what they share."""
