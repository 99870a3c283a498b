"""Effects: what is known of a request's delivery, and whether it may be sent again. Pure; knows no I/O."""
