"""The OpenWOP v2 surface of the pack over HTTP."""
