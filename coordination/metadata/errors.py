"""What metadata refuses, in an operator's words."""

from __future__ import annotations

from coordination.errors import TidelakeError


class MetadataError(TidelakeError):
    """A request about changefeeds, captures or their schedule that cannot be done as asked."""


class BrokenValue(MetadataError):
    """A value in etcd that neither we nor TiCDC wrote like that."""


class ChangefeedNotFound(MetadataError):
    """No changefeed has that UUID or name (any more)."""


class CaptureNotFound(MetadataError):
    """No capture with that ID is registered."""


class ChangefeedExists(MetadataError):
    """Its name is taken; a removed one keeps its name until it is cleaned up."""


class ChangefeedUpdateRefused(MetadataError):
    """Only a paused changefeed may be changed."""


class InvalidTransition(MetadataError):
    """A state that has no such way out."""


class InvalidSchedule(MetadataError):
    """A schedule that cannot follow the one before it."""


class NotLaunched(MetadataError):
    """Who asked does not own the changefeed: its launch is over, or was another's."""


class OwnerNotFound(MetadataError):
    """No capture leads at the moment."""
