"""An archive as it is read: which instances, epochs and states it has, and episodes to repeat."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import cloudpickle

from clonos.archive.desk import Desk
from clonos.archive.epochs_of_rows import LAST, EpochsOfRows
from clonos.archive.tracing import RowIsMade, Watcher
from clonos.errors import CheckpointMismatch, ConfigurationError, LogCorrupt, SnapshotCorrupt, StateError
from clonos.operators.function_code import code_of, is_another
from clonos.operators.intercept.install import install
from clonos.protocol.archive.archived_state import ArchivedState, EpochLog, log_order
from clonos.protocol.archive.episode import Episode, Lacking, put_together
from clonos.protocol.archive.erasure import ErasurePlan, lower_bound, noted_bound
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.epoch_run import EpochRun
from clonos.protocol.fence import Fence
from clonos.protocol.ids import (
    LOG_BEGIN,
    NO_EPOCH,
    Epoch,
    LogOffset,
    NodeId,
    Origin,
    OutputNumber,
    epoch_before,
)
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal.determinant import Step
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark.checkpoint import Checkpoint, checkpoint_at
from clonos.spark.facts import INTERCEPT
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import key_file_of_environment, read_keys
from clonos.storage.cleaned_notes import HINT as CLEANED_HINT
from clonos.storage.manifest import Manifest
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import SnapshotStore
from clonos.storage.working_folders import working_folder
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica import snapshot_metadata as metadata


class _DamagedState(Exception):
    """An archived state cannot be read, so that one from before has to do."""

    def __init__(self, state: Manifest | None) -> None:
        super().__init__()
        assert state is not None
        self.name = state.name


@dataclass
class ArchivedInstance:
    """What the archive has of one."""

    operator: str
    origin: Origin
    archive: Archive
    segments: dict[SegmentName, int]  # their bytes
    states: SnapshotStore
    erasing: frozenset[Epoch] = frozenset()
    """Epochs that an erasure has begun to erase: nothing of them counts any more."""
    committed: Epoch = NO_EPOCH
    """The last epoch that had committed before the archive was looked at."""
    before: Fence | None = None  # only states that were stored under a lower one count
    _programs: dict[str, NodeSpec] = field(default_factory=dict)
    _codes: dict[str, str] = field(default_factory=dict)  # of programs, as their functions are today
    _known: tuple[Epoch, Episode | Lacking] | None = None
    _logs: dict[Epoch, EpochLog | None] = field(default_factory=dict)
    _bounds: dict[SnapshotName, Epoch | None] = field(default_factory=dict)  # of states

    def __str__(self) -> str:
        return f"{self.operator}[{self.origin.instance}]"

    @property
    def files(self) -> SegmentFiles:
        return self.archive.segments(self.origin)

    @cached_property
    def epochs(self) -> dict[Epoch, list[SegmentName]]:
        found: dict[Epoch, list[SegmentName]] = {}
        for name in self.segments:
            found.setdefault(name.epoch, []).append(name)
        return found

    def left_at(self, epoch: Epoch) -> int:
        """When the last was left of an epoch that is there, in microseconds since 1970."""
        return max(name.written_at for name in self.epochs[epoch])

    def epoch_behind(self, epoch: Epoch) -> Epoch | None:
        """The next one that is there."""
        return min((each for each in self.epochs if each > epoch), default=None)

    @cached_property
    def state_names(self) -> list[SnapshotName]:
        """Of the archived states, in the order of the log."""
        names = (each for each in self.states.manifests() if self.before is None or each.fence < self.before)
        return sorted(names, key=log_order)

    @cached_property
    def state_epochs(self) -> list[Epoch]:
        """At whose end there is a state, in order."""
        return sorted({name.epoch for name in self.state_names if name.final})

    @property
    def bytes(self) -> int:
        return sum(self.segments.values())

    def episode(self, epoch: Epoch) -> Episode | Lacking:
        """What the instance did in an epoch. The last one that was asked for is kept in mind."""
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self._read_episode(epoch)
        return self._known[1]

    def _read_episode(self, epoch: Epoch) -> Episode | Lacking:
        if epoch in self.erasing:
            return Lacking("`clonos archive forget` is erasing it, or was cut short in that", is_erased=True)
        if epoch not in self.epochs:
            return Lacking("it is not in the archive")
        try:
            return put_together(list(self.files.read(self.epochs[epoch])))
        except LogCorrupt as error:
            return Lacking(f"it cannot be read: {error.message}", is_curable=True)

    @cached_property
    def rows(self) -> EpochsOfRows:
        return EpochsOfRows(self)

    def has_ended(self, epoch: Epoch) -> bool:
        """As far as can be read."""
        emitted = self.emitted(epoch) if epoch in self.epochs else None
        return emitted is not None and emitted < LAST

    def emitted(self, epoch: Epoch) -> OutputNumber | None:
        """The number of the last row up to the end of an epoch, if that can be read; of one that has not ended more
        than any."""
        try:
            return self.read_emitted(epoch)
        except LogCorrupt:
            return None

    def read_emitted(self, epoch: Epoch) -> OutputNumber:
        """The same. Raises LogCorrupt."""
        for name in reversed(self.epochs[epoch]):
            for segment in self.files.read([name]):
                if segment.ended is not None:
                    return segment.ended.emitted_output
        return LAST

    def _state_for(
        self, epoch: Epoch, number: OutputNumber | None, passed_over: set[SnapshotName]
    ) -> Manifest | None:
        """The newest archived state that an epoch can be repeated from: of the end of an earlier one, or, up to the
        output row `number`, from inside it. What is damaged, or of a history that was given up, is passed over."""
        for name in reversed(self.state_names):
            is_before = name.final and name.epoch < epoch
            is_inside = number is not None and not name.final and name.epoch == epoch
            if name in passed_over or not (is_before or is_inside):
                continue
            if not self._serves(name, epoch):
                return None  # what is older lacks an epoch between: that in which the key came
            if (found := self._read_state(name)) is not None:
                state, content = found
                if is_inside and number is not None and content.emitted >= number:
                    continue
                behind = epoch if is_inside else min(each for each in self.epochs if each > name.epoch)
                if self._goes_on_from(ArchivedState(name, content), behind):
                    return state
        return None

    def _serves(self, name: SnapshotName, epoch: Epoch) -> bool:
        bound = self.bound_of(name)
        return bound is None or epoch <= bound

    def bound_of(self, name: SnapshotName) -> Epoch | None:
        """The last epoch that may be repeated from a state, by what it says itself, if it can be read, and by what an
        earlier version has noted; None where there is no such bound."""
        if name not in self._bounds:
            found = self._read_state(name)
            own = None if found is None else found[1].serves_upto
            self._bounds[name] = lower_bound(own, self.noted_bound(name.epoch))
        return self._bounds[name]

    def noted_bound(self, state: Epoch) -> Epoch | None:
        """The same of any state of an epoch, by what is noted."""
        noted = self.cleaned_upto
        return epoch_before(state) if isinstance(noted, Lacking) else noted_bound(state, noted)

    @cached_property
    def cleaned_upto(self) -> list[Epoch] | Lacking:
        """Up to which epochs states may lack a key that an earlier version has erased. Where that cannot be read, no
        state is used."""
        try:
            return self.archive.cleaned.upto(self.origin)
        except LogCorrupt as error:
            return Lacking(f"{error.message}. {CLEANED_HINT}")
        except CheckpointMismatch as error:
            return Lacking(str(error))

    def cut_off(self, epoch: Epoch) -> Lacking | None:
        """Why the state that an epoch could be repeated from is not whole, if that is so, or not known."""
        before = [name for name in self.state_names if name.final and name.epoch < epoch]
        noted = self.cleaned_upto
        if isinstance(noted, Lacking):
            return replace(noted, why=f"epoch {epoch}: {noted.why}", epoch=epoch) if before else None
        is_cut_off = not self._serves(before[-1], epoch) if before else any(bound < epoch for bound in noted)
        return _cut_off(epoch) if is_cut_off else None

    def _read_state(self, name: SnapshotName) -> tuple[Manifest, InstanceSnapshot] | None:
        """And what it says of the instance; None where that cannot be read, or it is gone."""
        try:
            found = self.states.named(str(name))
            return None if found is None else (found, metadata.decode(found.meta, lambda _: tuple))
        except SnapshotCorrupt:
            return None

    def _goes_on_from(self, state: ArchivedState, behind: Epoch) -> bool:
        """Whether what is archived of the epoch goes on where the state was taken."""
        own = self._log_of(state.name.epoch)
        return state.goes_on(self.origin, own, self.episode(behind), self.state_names)

    def _log_of(self, epoch: Epoch) -> EpochLog | None:
        """Of an epoch, if it can be read."""
        if epoch not in self._logs:
            self._logs.clear()  # one after the other is asked for
            left_by = (name.fence for name in self.epochs.get(epoch, ()))
            self._logs[epoch] = EpochLog.of(self.episode(epoch), left_by)
        return self._logs[epoch]

    def _without_state(self, epoch: Epoch, log_start: LogOffset) -> Lacking:
        """Why an epoch that begins there cannot be repeated from any state."""
        before = [name for name in self.state_names if name.final and name.epoch < epoch]
        if not before:
            why = f"no state from before epoch {epoch} is in the archive: the query ran without it, or it was dropped"
            return Lacking(why)
        last = f"the last state before it, of the end of epoch {before[-1].epoch}"
        begins = f"epoch {epoch} begins at log offset {log_start}, and {last}"
        if (found := self._read_state(before[-1])) is None:
            return Lacking(f"{begins}, is damaged", is_curable=True)
        offset = found[1].log_offset
        if offset < log_start:
            return Lacking(f"{begins}, is at {offset}: what was between is not in the archive")
        return Lacking(f"{begins}, is not what it goes on from")

    def program(self, digest: str) -> NodeSpec | Lacking:
        """What replicas were told of the operator, with the user's function in it."""
        if digest in self._programs:
            return self._programs[digest]
        try:
            raw = self.archive.program(digest)
            if raw is None:
                return Lacking(f"its program {digest[:12]} is not in the archive", is_curable=True)
            node: NodeSpec = cloudpickle.loads(raw)
        except LogCorrupt as error:
            return Lacking(error.message, is_curable=True)
        except Exception as error:  # of the modules of the user's functions, which may not be there any more
            why = f"{type(error).__name__}: {error}"
            return Lacking(f"its program {digest[:12]} cannot be loaded here: {why}", is_curable=True)
        self._programs[digest], self._codes[digest] = node, code_of(node.operator)
        return node

    def _of_then(self, episode: Episode) -> NodeSpec | Lacking:
        """The program of an episode, if its functions are those of then: pickled by their names, they are what stands
        there today."""
        node = self.program(episode.program)
        if isinstance(node, NodeSpec) and is_another(episode.code, self._codes[episode.program]):
            return Lacking(
                f"the function of {node.name!r} is another one than then: its code, or that of a function, class or "
                "constant of your modules that it names, has changed. Bring back the modules of then, on Python's path "
                "or in the working directory",
                is_curable=True,
            )
        return node

    @cached_property
    def last_ended(self) -> Epoch | None:
        """The last epoch, but for one that is running."""
        for epoch in sorted(self.epochs, reverse=True):
            found = self.episode(epoch)
            if isinstance(found, Episode) or not found.is_open:
                return epoch
        return None

    def begin_at_end(self, epoch: Epoch, desk: Desk) -> bool:
        """At the desk, as it was at the end of an epoch by an archived state alone; whether there is one, from which
        the next epoch that is there goes on."""
        following = self.epoch_behind(epoch)
        state = None if following is None else self._state_for(following, None, set())
        if following is None or state is None or not state.final or state.epoch != epoch:
            return False
        episode = self.episode(following)
        node = self._of_then(episode) if isinstance(episode, Episode) else episode
        if isinstance(node, Lacking) or isinstance(episode, Lacking):
            return False
        try:
            desk.begin(node, state, self.states, intercept=episode.intercept)
        except SnapshotCorrupt:
            return False
        return True

    def state_at_end(self, epoch: Epoch) -> Manifest | None:
        """The archived state of the end of an epoch, of the history that is archived of it, if it is there, and no key
        was erased from it, nor from one that the epoch may be repeated from."""
        own = self._log_of(epoch)
        if own is None or any(first <= epoch <= last for first, last in self._without_a_key):
            return None
        for name in reversed(self.state_names):
            if name.epoch == epoch and name.final:
                found = self._read_state(name)
                if found is not None and ArchivedState(name, found[1]).is_end_of(self.origin, own):
                    return found[0]
        return None

    @cached_property
    def _without_a_key(self) -> list[EpochRun]:
        """Where states from which a key was erased may stand in for those of then."""
        bounds = ((name.epoch, self.bound_of(name)) for name in self.state_names)
        return [(epoch, bound) for epoch, bound in bounds if bound is not None]

    def damaged_states(self, folder: Path) -> Iterator[str]:
        """What is wrong with archived states: each is read; and with what is noted of them."""
        if isinstance(self.cleaned_upto, Lacking):
            yield self.cleaned_upto.why
        for at, name in enumerate(self.state_names):
            try:
                found = self.states.named(str(name))
                if found is not None:
                    self.states.restore(found, str(folder / f"state-{at}"))
                    shutil.rmtree(folder / f"state-{at}")
                    state = ArchivedState(name, metadata.decode(found.meta, lambda _: tuple))
                    if wrong := state.wrong(self.origin, self._log_of(name.epoch)):
                        yield f"{_place_of(name)}: {wrong}"
            except SnapshotCorrupt as error:
                if name not in self.states.manifests():
                    continue  # it has been dropped meanwhile
                yield f"{_place_of(name)}: {error.message}"

    @cached_property
    def first(self) -> Epoch:
        """The first epoch that can be repeated."""
        epoch = min(self.epochs, default=NO_EPOCH)
        found = self.episode(epoch)
        if isinstance(found, Episode) and found.log_start == LOG_BEGIN:
            return epoch
        behind = min(self.state_epochs, default=epoch)
        return min((each for each in self.epochs if each > behind), default=epoch)

    def first_behind(self, epoch: Epoch, upto: Epoch) -> Epoch | None:
        """The first epoch behind this one, up to another, before which there is a state that is not before it."""
        behind = next((each for each in self.state_epochs if each >= epoch), None)
        if behind is None:
            return None
        return min((each for each in self.epochs if behind < each <= upto), default=None)

    def starts_before(self, epoch: Epoch) -> list[Epoch]:
        """With which epochs a repetition can begin, so that what was kept before this one is known: each about twice as
        far back as the one before it, the first one that can be repeated at last."""
        found = [epoch] if any(not name.final and name.epoch == epoch for name in self.state_names) else []
        behind = [
            each for each in sorted(self.epochs) if epoch_before(each) in self.state_epochs and each < epoch
        ]
        back = 1
        while back < len(behind):
            found.append(behind[-back])
            back *= 2
        return [*found, self.first] if self.first < epoch else found

    def processes(self, epoch: Epoch, step: Step) -> list[dict[str, Any]]:
        """Which have left a step of an epoch that has been repeated: what each did of it, of which start of the query
        and which task attempt it was, how many were lost in that before it, and where it was, if it has said so."""
        episode = self.episode(epoch)
        assert isinstance(episode, Episode)
        found = []
        for part in sorted(episode.parts, key=lambda part: part.fence):
            if (share := part.share(step)) is None:
                continue
            fence, where = Fence(part.fence), part.ran_on
            said = {"start": fence.generation, "attempt": fence.attempt - 1, "replacement": fence.replacement}
            at = {} if where is None else {"host": where.host, "pid": where.pid}
            found.append({"did": share.value, **said, **at})
        return found

    def version(self, epoch: Epoch) -> str:
        """Of the function, in an epoch that has been repeated."""
        return self.program_of(epoch).versions.at(epoch)

    def operator_form(self, epoch: Epoch) -> str:
        """Which of the API's methods made the operator, in an epoch that has been repeated."""
        return self.program_of(epoch).programs().form

    def program_of(self, epoch: Epoch) -> NodeSpec:
        """Of an epoch that has been repeated."""
        episode = self.episode(epoch)
        assert isinstance(episode, Episode)
        node = self.program(episode.program)
        assert isinstance(node, NodeSpec)
        return node

    def repeated(
        self,
        upto: Epoch,
        desk: Desk,
        *,
        since: Epoch | None = None,
        number: OutputNumber | None = None,
        begins: Callable[[Epoch, NodeSpec], None] = lambda epoch, node: None,
    ) -> Iterator[Episode | Lacking]:
        """At the desk, epoch by epoch up to one: each that was repeated, or why it cannot be, which is the last one. It
        begins with the newest state before the epoch `since`, if not before `upto`, or, where it goes up to the output
        row `number`, with one inside that. `begins` is told of each before. Raises DivergenceError."""
        if upto not in self.epochs:
            yield Lacking(f"epoch {upto}: it is not in the archive", epoch=upto)
            return
        passed_over: set[SnapshotName] = set()  # states that are damaged
        while True:
            first = upto if since is None else since
            state = self._state_for(first, number, passed_over)
            if state is None and (lacking := self.cut_off(first)) is not None:
                yield lacking
                return
            try:
                for found in self._repeated_from(state, upto, desk, begins):
                    yield found if isinstance(found, Episode) else found.of_what_is_damaged(bool(passed_over))
            except _DamagedState as damaged:
                passed_over.add(damaged.name)
                continue
            return

    def repeated_to_row(
        self,
        number: OutputNumber,
        epoch: Epoch,
        desk: Desk,
        *,
        since: Epoch | None = None,
        begins: Callable[[Epoch, NodeSpec], None] = lambda epoch, node: None,
    ) -> Lacking | None:
        """At the desk, up to where its watcher says that what it looks for is made (RowIsMade): the row `number` of an
        epoch, or rows behind it. It begins as near as it can, or before the epoch `since`. Why the epoch cannot be
        repeated, if it cannot. Raises DivergenceError."""
        inside = number if since is None else None
        try:
            for each in self.repeated(epoch, desk, since=since, number=inside, begins=begins):
                if isinstance(each, Lacking):
                    return each
        except RowIsMade:
            """That is far enough."""
        return None

    def _repeated_from(
        self, state: Manifest | None, upto: Epoch, desk: Desk, begins: Callable[[Epoch, NodeSpec], None]
    ) -> Iterator[Episode | Lacking]:
        first = NO_EPOCH if state is None else state.epoch + state.final
        reached: LogOffset | None = None
        bound = None if state is None else self.bound_of(state.name)
        for epoch in [each for each in self.epochs if first <= each <= upto]:
            episode = self.episode(epoch)
            node = self._of_then(episode) if isinstance(episode, Episode) else episode
            if isinstance(node, Lacking):
                yield replace(node, why=f"epoch {epoch}: {node.why}", epoch=epoch)
                return
            assert isinstance(episode, Episode)
            if bound is not None and epoch > bound:
                yield _cut_off(epoch)
                return
            if reached is None:
                if state is None and episode.log_start != LOG_BEGIN:
                    without = self._without_state(epoch, episode.log_start)
                    yield replace(without, is_before=epoch == min(self.epochs), epoch=epoch)
                    return
                try:
                    reached = desk.begin(node, state, self.states, intercept=episode.intercept)
                except SnapshotCorrupt as error:
                    raise _DamagedState(state) from error
                episode = episode.since(reached)
            if episode.log_start != reached:
                yield Lacking(
                    f"epoch {epoch} begins at log offset {episode.log_start}, and what is archived from before it ends "
                    f"at {reached}: an epoch in between is missing, or the query gave its history up there",
                    epoch=epoch,
                )
                return
            begins(epoch, node)
            if (lacking := desk.repeat(node, episode)) is not None:
                yield Lacking(f"epoch {epoch}: {lacking.why}", epoch=epoch)
                return
            reached = episode.ended.log_end
            yield episode


class ArchivedQuery:
    """The archive of a query."""

    def __init__(self, location: str, key_file: str = "") -> None:
        """`key_file`: with the keys of an archive that is encrypted; unless said, as the environment names it. Raises
        CheckpointMismatch where there is no causal query, and ConfigurationError where no key of its archive is given.
        """
        self.checkpoint: Checkpoint = checkpoint_at(location)
        self.program: Topology = self.checkpoint.history().bindings[-1].program
        self.id = self.checkpoint.shape()[0]
        self.key_file = key_file or key_file_of_environment()
        self.archive = Archive(self.checkpoint.location, keys=read_keys(self.key_file), query=self.id)
        self.archive.check_keys()
        self._instances: dict[Origin, ArchivedInstance] = {}

    @cached_property
    def committed(self) -> Epoch:
        """The last epoch that had before it was asked for."""
        return self.checkpoint.committed()

    @cached_property
    def erasure(self) -> ErasurePlan | None:
        """One that was begun, and has not ended."""
        return self.archive.erasure()

    def load_programs(self) -> None:
        """From now on programs may be loaded: functions that are pickled by their names are imported from the working
        directory, too, and where their own clocks were recorded, these are intercepted before."""
        if self.intercept:
            install()
        if "" not in sys.path:
            sys.path.insert(0, "")

    @property
    def intercept(self) -> bool:
        """Whether functions' own clocks and random generators were recorded in any epoch."""
        programs = (each.program for each in self.checkpoint.history().bindings)
        return any((each.settings or {}).get(INTERCEPT) == "true" for each in programs)

    @property
    def zone(self) -> str:
        """In which functions know times."""
        return self.program.zone or "UTC"

    def node(self, operator: str) -> NodeId:
        """By its name. Raises ConfigurationError where there is no such operator."""
        nodes = self._operators
        found = next((node for node in nodes if node.name == operator), None)
        if found is None:
            raise ConfigurationError(
                f"the query has no operator {operator!r}",
                hint=f"It has {', '.join(repr(node.name) for node in nodes)}",
            )
        return NodeId(found.number)

    @property
    def operators(self) -> list[NodeId]:
        return [NodeId(node.number) for node in self._operators]

    @property
    def _operators(self) -> list[Node]:
        return [node for node in self.program.nodes if node.kind is NodeKind.OPERATOR]

    def instances(self, operator: str | None = None) -> list[ArchivedInstance]:
        """Of all operators, or of one. Raises ConfigurationError where there is no such operator."""
        nodes = (
            [NodeId(node.number) for node in self._operators] if operator is None else [self.node(operator)]
        )
        return [instance for node in nodes for instance in self.instances_of(node)]

    def check_archive(self, instances: Sequence[ArchivedInstance]) -> None:
        """Raises ConfigurationError where nothing of them is archived."""
        if any(each.segments for each in instances):
            return
        if any(each.segments for each in self.instances()):
            names = ", ".join(dict.fromkeys(each.operator for each in instances))
            raise ConfigurationError(
                f"the archive in {self.checkpoint.location} has nothing of what {names} did",
                hint="It was lost, or dropped: `clonos archive list` shows what there is",
            )
        raise ConfigurationError(
            f"{self.checkpoint.location} has no archive",
            hint="Start the query with spark.clonos.archive.keep, as in 30 days",
        )

    def instances_of(self, node: NodeId) -> list[ArchivedInstance]:
        """Of one operator."""
        found = self.program.node(node)
        return [self._instance(found, Origin.of(node, number)) for number in range(found.parallelism)]

    def _instance(self, node: Node, origin: Origin) -> ArchivedInstance:
        """As it was when it was asked for first."""
        if origin not in self._instances:
            committed = self.committed  # one that runs goes on meanwhile
            states = self.archive.states(origin)
            names = self.archive.segments(origin).names()
            erasing = frozenset() if self.erasure is None else self.erasure.epochs_of(origin)
            self._instances[origin] = ArchivedInstance(
                node.name, origin, self.archive, names, states, erasing, committed
            )
        return self._instances[origin]

    def instance(self, origin: Origin) -> ArchivedInstance | None:
        """None where it is not one of an operator."""
        for node in self.program.nodes:
            if (
                node.kind is NodeKind.OPERATOR
                and node.number == origin.node
                and origin.instance < node.parallelism
            ):
                return self._instance(node, origin)
        return None

    def place_of(self, origin: Origin, number: OutputNumber) -> tuple[ArchivedInstance, Epoch]:
        """Which instance has made a row, and in which epoch. Raises StateError where that cannot be said."""
        instance = self.operator_instance(origin)
        epoch = instance.rows.made_in(number)
        if isinstance(epoch, Lacking):
            raise StateError(
                f"what made the row {origin.node}-{origin.instance}-{number} cannot be repeated: {epoch.why}"
            )
        return instance, epoch

    def operator_instance(self, origin: Origin) -> ArchivedInstance:
        """Raises StateError where it is not one of an operator."""
        instance = self.instance(origin)
        if instance is None:
            raise StateError(f"the query has no operator's instance {origin}")
        return instance

    def source(self, origin: Origin) -> str:
        """What a source channel is called."""
        if (named := self._named_channels.get((origin.node, origin.instance))) is not None:
            return named
        name = next((node.name for node in self.program.nodes if node.number == origin.node), "source")
        return f"{name}, partition {origin.instance}"

    @cached_property
    def _named_channels(self) -> dict[tuple[int, int], str]:
        return {(each.node, each.number): each.name for each in self.checkpoint.channel_numbers().entries()}


@contextmanager
def desk_for(
    instance: ArchivedInstance, watcher: Watcher | None = None, *, as_stored: bool = False
) -> Iterator[Desk]:
    """A place to repeat what the instance did, as long as that takes. `as_stored`: it is found out what files of
    the state have that it begins with (`Desk.has_remains`)."""
    with working_folder("desk") as folder:
        desk = Desk(instance.origin, Path(folder, "desk"), tracer=watcher, as_stored=as_stored)
        try:
            yield desk
        finally:
            desk.close()


def _place_of(name: SnapshotName) -> str:
    return f"the state of {'the end of' if name.final else 'inside'} epoch {name.epoch}"


def _cut_off(epoch: Epoch) -> Lacking:
    return Lacking(
        f"epoch {epoch}: of the state that it began with, a key was erased by `clonos archive forget`",
        is_erased=True,
        epoch=epoch,
    )
