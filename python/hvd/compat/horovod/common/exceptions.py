# SPDX-License-Identifier: Apache-2.0
"""The exceptions of a training job; the classes that :mod:`hvd` raises."""

from hvd.common import HorovodInternalError, HostsUpdatedInterrupt

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


def get_version_mismatch_message(name, version, installed_version):
    """Returns a line that says which version of a framework was expected."""
    return (
        f"hvd was built for {name} {version}, but {name} {installed_version} is "
        "installed"
    )


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than the one built for; hvd raises it never."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
