"""What an instance that keeps snapshots asks of the runtime to begin from one, whatever is in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.snapshot_candidate import Snapshots

S = TypeVar("S")


class SnapshotPorts(ABC, Generic[S]):
    """`S` is a snapshot as the runtime keeps it."""

    @property
    @abstractmethod
    def snapshots(self) -> Snapshots[S]:
        """As they were opened last."""

    @abstractmethod
    def open_snapshots(self, request: AttachRequest) -> None:
        """As the request has it: a standby only looks."""

    @abstractmethod
    def claim(self, fence: Fence) -> None:
        """The snapshots. Raises Fenced."""

    @abstractmethod
    def discard_from(self, epoch: Epoch) -> None:
        """Whatever others left of an epoch that is run again (`snapshot_name.overtaken`)."""

    @abstractmethod
    def line(self, generation: Generation) -> RecoveryLine:
        """Where this start of the query resumes."""
