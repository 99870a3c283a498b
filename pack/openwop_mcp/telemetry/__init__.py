"""Traces and metrics by OpenTelemetry: what is said, in whose words, and where it goes.

What is said holds nothing of what travels: no argument, result, key, credential or message of anybody's. Each module
is for one part of the process; importing this package imports none of them.
"""
