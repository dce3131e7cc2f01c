"""Errors, sorted by what to do about them. The message is what an operator reads."""

from __future__ import annotations


class TidelakeError(Exception):
    """Ends the job: exit code 1, the message alone, no traceback."""


class ConfigError(TidelakeError):
    """The call or its configuration is wrong: exit code 2. ``code``: TiCDC's, of a changefeed."""

    code = "CDC:ErrInvalidReplicaConfig"


class SourceUriInvalid(ConfigError):
    """``source-uri`` cannot be right."""

    code = "CDC:ErrKafkaInvalidConfig"


class SinkUriInvalid(ConfigError):
    """``sink-uri`` cannot be right."""

    code = "CDC:ErrSinkURIInvalid"


class TopicMissing(ConfigError):
    """Where it is read from is not there, or not as it was described: it may come yet."""

    code = "CDC:ErrKafkaTopicNotExists"


class Fenced(TidelakeError):
    """Trust in the session has lapsed: nothing may be written any more."""


class CaptureSuicide(TidelakeError):
    """The session is gone: this capture must stop writing and start again as a new one."""


class TermRefused(TidelakeError):
    """Another has claimed the changefeed in Delta: what we would write does not count. It ends the
    work on that changefeed, not the capture."""

    code = "CDC:ErrNotOwner"


class TableSealed(TidelakeError):
    """A table takes no writes of this changefeed any more: another has taken it over."""

    code = "CDC:ErrChangefeedUnretryable"


class LeaseGone(CaptureSuicide):
    """The lease that a call to etcd named has expired or was revoked."""


class Stop(TidelakeError):
    """Asked to end: not a failure."""


class TryAgain(TidelakeError):
    """Nothing is wrong: the same again, a little later."""
