"""How long a test waits for what has to happen."""

PATIENCE = 60.0
"""Seconds. What is waited for takes far less; on a loaded machine everything takes longer, and a test that gives up
early says nothing about the product. Where promptness is the point, a test has a bound of its own."""
