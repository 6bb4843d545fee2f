"""What can go wrong with a request, beside what the library itself says."""


class Missing(LookupError):
    """Something that was deleted, or never there."""


class TooLarge(ValueError):
    """A file above the size limit."""


class QueueFull(RuntimeError):
    """Too many jobs wait already."""
