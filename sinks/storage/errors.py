"""Turns errors of the storage, as deltalake, obstore and Spark raise them, into the one sentence
that an operator reads: which work failed, why, and the way out."""

from __future__ import annotations

import errno
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from coordination.errors import TidelakeError, TryAgain

ERROR_LENGTH = 300
_FOLDER_BYTES = 4096  # that a new folder takes
STORAGE_ERRORS = (DeltaError, OSError, pa.ArrowException)
_NOISE = re.compile(r"(\x1b\[[0-9;]*m|↳|\s)+")
_STACK = re.compile(r"\s+0: <unknown>.*", re.DOTALL)  # a Rust stack trace

# The words of Rust's object stores, of Linux, and of Hadoop's file systems. The first match counts:
# a store also answers 403 to a request without credentials.
_CREDENTIALS = re.compile(
    r"loading credentials|imds|token request|metadata/identity|metadata\.google|169\.254\.169\.254"
    r"|Account must be specified|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
    r"|InvalidToken|Unauthenticated|401 Unauthorized|NoAuthWithAWSException|NoAwsCredentials"
    r"|Unable to load (AWS )?credentials|Could not load.*credentials|decode service account"
    r"|AuthenticationFailed|invalid_grant|Missing (SecretAccessKey|AccessKeyId)",
    re.IGNORECASE,
)
_FULL = re.compile(
    r"No space left|os error 28\b|os error 122\b|Disk quota exceeded|QuotaExceeded"
    r"|507 Insufficient Storage|StorageFull",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"Read-only file system|os error 30\b", re.IGNORECASE)
_PERMISSION = re.compile(
    r"Permission denied|PermissionDenied|os error 13\b|AccessControlException|AccessDenied"
    r"|Access Denied|403 Forbidden|AuthorizationPermissionMismatch|AuthorizationFailure"
    r"|Operation not permitted",
    re.IGNORECASE,
)
_JAVA_MKDIR = re.compile(r"Mkdirs failed to create")  # Java does not say why
_NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|FilesystemNotFound|bucket does not exist|InvalidBucketName",
    re.IGNORECASE,
)
_REGION = re.compile(  # S3 says which one it is, or redirects without an address
    r"AuthorizationHeaderMalformed|region '[^']*' is wrong(; expecting '(?P<named>[\w-]+)')?"
    r"|PermanentRedirect|incorrectly configured region|IllegalLocationConstraint"
)
_CLOCK = re.compile(r"RequestTimeTooSkewed")
_PLAIN_HTTP = re.compile(
    r"URL scheme is not allowed|http://\S+ in \S+ - HTTP error:? builder error"
)
_NO_URL = re.compile(r"InvalidUri|Executor has crashed")
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException.*FileSystem")
_SILENT = re.compile(
    r"Connection refused|timed out|dns error|error sending request|tcp connect error"
    r"|UnknownHostException|Connection reset",
    re.IGNORECASE,
)
_UNLIKE = re.compile(r"Schema error|Json error|Unsupported|is not supported")  # of delta-rs only

# The variables that each store reads from the environment (the engines other than Spark also from
# [storage-options]).
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    "abfss": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS (a file)",
}
_WHERE = (
    "in the environment of this process, or by the same name under [storage-options] in the "
    "changefeed file"
)


class StorageAway(TryAgain):
    """The storage is full or does not answer. That may pass, so it is tried again for a while."""


class StorageRefuses(TidelakeError):
    """Waiting does not help: an operator must give the missing permission, credentials or bucket,
    or mend a table."""

    code = "CDC:ErrS3StorageAPI"


def storage_error(doing: str, uri: str, error: BaseException) -> TidelakeError:
    """The error (StorageRefuses or StorageAway) whose one line tells the operator which work
    failed, where, why, and the way out."""
    text = _told(error).replace(uri.partition("://")[2] or uri, "")  # a name may be such a word
    if _JAVA_MKDIR.search(text):
        text = f"{text} <- {_why_no_folder(uri)}"
    # A store answers 403 also where its quota is used up.
    is_full = _FULL.search(text) is not None
    reason = None if is_full else _of_s3(text) or _refusal(text, uri) or _unlike(error)
    if reason is not None:
        return StorageRefuses(f"cannot {doing} {uri}: {reason}")
    return StorageAway(f"cannot {doing} {uri}: {_absence(text, error)}")


def is_storage_error(error: BaseException) -> bool:
    """Whether an error of Spark, the JVM or deltalake is about the storage, by its text: the
    error's class does not tell."""
    text = _told(error)
    found = (_FULL.search(text), _JAVA_MKDIR.search(text))
    return _refusal(text, "") is not None or any(found)


@contextmanager
def one_sentence(doing: str, uri: str) -> Iterator[None]:
    """For calls of deltalake: turns its storage errors into ``storage_error``. A commit that lost
    (CommitFailedError) and a missing table (TableNotFoundError) are raised as they are."""
    try:
        yield
    except (CommitFailedError, TableNotFoundError):
        raise
    except STORAGE_ERRORS as error:
        raise storage_error(doing, uri, error) from error


def one_line(error: BaseException) -> str:
    """The message of an error without colours and line breaks, cut to `ERROR_LENGTH`."""
    text = _NOISE.sub(" ", _STACK.sub("", str(error))).strip()
    return text[:ERROR_LENGTH] or type(error).__name__


def _told(error: BaseException) -> str:
    cause = error.__cause__
    return _NOISE.sub(" ", str(error)) + (f" <- {_told(cause)}" if cause is not None else "")


def _refusal(text: str, uri: str) -> str | None:
    """The reason and the advice, where waiting does not help; else None."""
    store = urlsplit(uri).scheme
    if _CREDENTIALS.search(text) and store not in ("", "file"):
        variables = _VARIABLES.get(store, "the store's variables")
        return f"the storage has no valid credentials of ours. Set {variables} {_WHERE}"
    if _NO_FILE_SYSTEM.search(text):
        return (
            f"Spark has no file system for {store}://. Give it the store's Hadoop package by "
            "spark.jars.packages (docs/configuration.md, Storage)"
        )
    if _NO_BUCKET.search(text):
        return "there is no such bucket or container. Make it, or mend the sink URI"
    if _READ_ONLY.search(text):
        return "the file system is mounted read-only. Mount it writable, or mend the sink URI"
    if _PERMISSION.search(text):
        return f"permission denied. {_permit(store)}"
    return None


def _of_s3(text: str) -> str | None:
    if _REGION.search(text):
        named = [each["named"] for each in _REGION.finditer(text) if each["named"]]
        which = f", {named[0]}" if named else ""
        return f"the bucket is in another region{which}. Set AWS_REGION {_WHERE}"
    if _CLOCK.search(text):
        return "the clock of this machine is wrong by more than the storage allows. Set it"
    if _PLAIN_HTTP.search(text):
        return f"its endpoint is http://, without TLS. Set AWS_ALLOW_HTTP=true {_WHERE}"
    if _NO_URL.search(text):
        return f"its endpoint is no URL. Set AWS_ENDPOINT_URL as https://host:port {_WHERE}"
    return None


def _unlike(error: BaseException) -> str | None:
    """The reason, if the table itself cannot be read or written as it is; else None."""
    is_lasting = isinstance(error, (SchemaMismatchError, DeltaProtocolError))
    if not is_lasting and not (isinstance(error, DeltaError) and _UNLIKE.search(str(error))):
        return None
    return (
        f"{one_line(error)} (waiting does not help: the table has other columns or features than "
        "this release knows, or its log is damaged; restore it, or take the release that wrote it)"
    )


def _why_no_folder(uri: str) -> str:
    """Why a local folder could not be made, by the state of its file system right now."""
    folder = Path(urlsplit(uri).path)
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    is_full = disk.f_bavail * disk.f_frsize < _FOLDER_BYTES or (disk.f_files and not disk.f_favail)
    return os.strerror(errno.ENOSPC if is_full else errno.EACCES)


def _permit(store: str) -> str:
    if store in ("", "file"):
        return f"Let the user {_user()} of this process read and write that folder"
    return "Let these credentials read, write, list and delete there"


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # an ID without a name, as containers have
        return str(os.geteuid())


def _absence(text: str, error: BaseException) -> str:
    if _FULL.search(text):
        return "the disk is full, or the quota is used up. Free some space: it goes on by itself"
    if _SILENT.search(text):
        return (
            "the storage does not answer. Is it reachable from here, and is its endpoint right "
            "(AWS_ENDPOINT_URL for a store that only speaks S3)?"
        )
    return f"{one_line(error)} (is the storage reachable and writable, and is there space left?)"
