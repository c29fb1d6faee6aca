"""Repeating a recorded step.

Every question of the user function is answered from the recorded step. Asking for something else than was recorded
(another kind, one more, another name) or leaving a recorded outcome unused is a *divergence* (invariant I10): the
function depends on something that is not recorded, or its code has changed. A step that the log does not hold to its
end is repeated as far as it is held, and goes on live from there: no instance or sink depends on what is missing.

Where a step ends with a record that was passed over, that record may have asked for something in an earlier life that
the log holds: it stays there, unused.
"""

from __future__ import annotations

from clonos.errors import DivergenceError, Where
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Kind, Outcome, Step
from clonos.protocol.recovery.causal.recorder import Perform, Sent, StepPorts, StepRecorder, Wait

HINT = (
    "Likely causes: the function reads a clock, draws a random number or calls a service without ctx (use ctx.now(), "
    "ctx.random, ctx.call), iterates over a set or depends on the process, or its code has changed since the "
    "recording. If the code changed on purpose, give the operator a new version=, and the function as it was as "
    "previous={old version: old function}: the epoch is repeated by that, and the new one takes over with the next. "
    "Where two log stores were lost since the last commit, the function may be deterministic (docs/limits.md)"
)


class StepReplayer(StepRecorder):
    """One step, executed again from its recording."""

    def __init__(self, ports: StepPorts, step: Step, where: Where) -> None:
        super().__init__(ports)
        self._step = step
        self._where = where
        # Calls begun that are carried out only if their answers are not recorded
        self._held: list[CallNumber] = []

    def _read_clock(self) -> int:
        if self._step.clocks:
            return self._step.clocks.popleft()
        self._beyond(Kind.CLOCK, "the clock of the bundle")
        return super()._read_clock()

    def _read_instant(self) -> int:
        if self._step.instants:
            return self._step.instants.popleft()
        self._beyond(Kind.INSTANT, "an exact clock reading")
        return super()._read_instant()

    def _outcome_of_call(self, name: str, perform: Perform) -> Outcome:
        if not self._step.calls:
            self._beyond(Kind.CALL, f"a call of {name}")
            return super()._outcome_of_call(name, perform)
        outcome = self._step.calls.popleft()
        if outcome.name != name:
            self._diverged(f"recorded was a call of {outcome.name}, asked for was a call of {name}")
        return outcome

    def _begin(self, number: CallNumber) -> None:
        if self._step.answers or self._step.complete:
            self._held.append(number)
        else:
            super()._begin(number)

    def _next_answer(self, wait: Wait) -> Answer:
        if not self._step.answers:
            asked = ", ".join(sorted({name for name, _ in self._under_way.values()}))
            self._beyond(Kind.ANSWER, f"the answer to a call of {asked}")
            held, self._held = self._held, []
            for number in held:
                super()._begin(number)
            return super()._next_answer(wait)
        answer = self._step.answers.popleft()
        name, _ = self._under_way.get(answer.number, (None, None))
        if name != answer.outcome.name:
            asked = "no such call is under way" if name is None else f"asked for was a call of {name}"
            self._diverged(
                f"recorded was the answer to call {answer.number} of the step, of {answer.outcome.name}: {asked}"
            )
        if answer.number in self._held:
            self._held.remove(answer.number)
        return answer

    def _announce(self, key: str) -> None:
        if not self._step.effects:
            self._beyond(Kind.EFFECT, f"an effect under the key {key!r}")
        elif self._step.effects[0].key != key:
            recorded = self._step.effects[0].key
            self._diverged(
                f"recorded was an effect under the key {recorded!r}, asked for was one under {key!r}"
            )

    def _outcome_of_effect(self, key: str, perform: Perform) -> Outcome:
        if not self._step.effects:
            return super()._outcome_of_effect(key, perform)
        effect = self._step.effects.popleft()
        # Announced, outcome lost: it may or may not have taken place. The key lets the outside tell.
        return effect.outcome if effect.outcome is not None else perform()

    def _stabilise(self, chunk: bytes) -> None:
        effects = self._step.effects
        if effects and effects[0].outcome is not None:
            self._ports.rebuilt(chunk)
        else:  # It will be performed, if again: the holder that handed the log back may not have it stable.
            super()._stabilise(chunk)

    def _append_unused(self, entries: bytearray) -> None:
        step = self._step
        if self._clock is None and step.clocks:
            codec.append_clock(entries, step.clocks[0])
        if step.instants:
            codec.append_instants(entries, step.instants)
        for call in step.calls:
            codec.append_call(entries, call)
        for answer in step.answers:
            codec.append_answer(entries, answer)
        for effect in step.effects:
            codec.append_effect(entries, effect.key)
            if effect.outcome is not None:
                codec.append_effect_done(entries, effect.outcome)

    def _append_end(self, outputs: int, sent: Sent) -> None:
        if self._step.complete:
            codec.append_end_again(self._entries, self._step)
        else:
            super()._append_end(outputs, sent)

    def keep(self) -> None:
        """What the log holds of the step was appended as it stands; do not append it again."""
        self._entries = bytearray()
        self._instants = []

    def close(self, outputs: int, sent: Sent) -> bytes:
        step = self._step
        if step.complete:
            self._check(step, outputs, sent)
            if step.skip is not None:
                return b""  # appended as it stands
        return super().close(outputs, sent)

    def _check(self, step: Step, outputs: int, sent: Sent) -> None:
        if step.skip is None:
            for left, what in (
                (step.clocks, "clock reading"),
                (step.instants, "exact clock reading"),
                (step.calls, "call"),
                (step.answers, "answer"),
                (step.effects, "effect"),
            ):
                if left:
                    self._diverged(
                        f"{len(left)} recorded {what}(s) were not asked for, the first {left[0]!r}"
                    )
        if step.outputs != outputs:
            self._diverged(f"recorded were {step.outputs} output rows, produced were {outputs}")
        # Older versions recorded a digest of the text of the rows, which not every row has: the count is compared.
        if step.end is Kind.SENT and not sent.has_digest(step.digest):
            rows = "the output row has" if outputs == 1 else f"the {outputs} output rows have"
            self._diverged(
                f"{rows} the digest {sent.digest:08x}, recorded was {step.digest:08x}: "
                "their content differs, or where they go"
            )

    def _beyond(self, kind: Kind, asked: str) -> None:
        if self._step.complete:
            self._diverged(
                f"asked for was {asked}, but the recorded step holds no further {kind.name} outcome"
            )

    def _diverged(self, what: str) -> None:
        raise DivergenceError(
            f"the replay differs from the recording in {self._said()}: {what}", where=self._where, hint=HINT
        )

    def _said(self) -> str:
        """The step; where it begins stands beside it."""
        if self._step.kind is Kind.TIMER:
            return "a step of timers"
        records = sum(count for _, count in self._step.runs)
        return "a step of one record" if records == 1 else f"a step of {records} records, from this one on"
