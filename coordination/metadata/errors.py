"""The errors of requests about changefeeds; their messages are what an operator reads."""

from __future__ import annotations

from coordination.orchestrator.transaction import ChangeRefused


class MetadataError(ChangeRefused):
    """A request about changefeeds, captures or their schedule that cannot be done as asked."""


class BrokenValue(MetadataError):
    """A value in etcd that is not in the format that Tidelake or TiCDC writes."""


class ChangefeedNotFound(MetadataError):
    """There is no changefeed of that name, or it was deleted and perhaps created anew since."""


class CaptureNotFound(MetadataError):
    """No capture with that ID is registered."""


class ChangefeedExists(MetadataError):
    """The name is taken; a removed changefeed keeps its name until it is cleaned up."""


class ChangefeedUpdateRefused(MetadataError):
    """The changefeed is not in a state in which it may be updated or cleaned up."""


class InvalidTransition(MetadataError):
    """The event is not possible for a changefeed in its present state."""


class InvalidSchedule(MetadataError):
    """The schedule row may not be changed so from its present state (see ``SchedState``)."""


class NotLaunched(MetadataError):
    """The capture does not own the changefeed: its launch is over, or was never its own."""


class OwnerNotFound(MetadataError):
    """No capture is elected as the controller at the moment."""
