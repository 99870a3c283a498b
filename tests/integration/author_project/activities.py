"""An author's own activities, in a module that is called like the pack's."""

from temporalio import activity


@activity.defn
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
