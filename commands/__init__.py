"""The command line, which composes settings, library, activities, workflows and host. Nothing of them knows it."""
