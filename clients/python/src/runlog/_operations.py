"""The operations of both kinds of runs and connections, with their documentation. `aio` and `sync` implement them: the former
returns awaitables and async iterators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

from ._settings import Calling, Opening

ABSENT: Any = object()
"""No result, which differs from the result `None`."""


class RunOperations:
    """The operations of a run."""

    def call(self, tool: str, args: object, effect: Callable[..., Any], **options: Unpack[Calling]) -> Any:
        """Runs `effect` unless the journal has the call's answer, and records its outcome.

        `key` identifies the call at its receiver, and makes it safe to repeat. Without one, a second call with the same arguments
        is another call. With `unique` it is the same call, for
        example because the arguments contain an id. An empty key raises `Usage`.

        With `repeatable` the effect may run any number of times, like a tool that only reads. If its process died, the
        call runs again without a key and without a decision; this requires the server feature `bases`.

        `retry` is a policy of tenacity for exceptions after which the effect may have happened, of a call with a key or with
        `repeatable`: each further attempt is recorded before it runs.

        `decode` converts a recorded result, which is JSON. If it raises, the call raises `Invalid`, and the effect does not run.

        Raises `Usage` for an effect that cannot be called with a `Call`, and `Invalid` for a part of `args` without
        JSON, with its path. If a result cannot be recorded, it is returned, and the call ends without it: the same call
        then raises `ResultNotRecorded`.

        The effect did not run if this raises `ReconcileRequired`, `ResultNotRecorded`, `Fenced`, `MissingContent`,
        `Unavailable`, `Stale` or `Conflict` with `happened` `nothing` or `unknown`. Otherwise `happened` describes
        the state of its result. `Failed` is the recorded failure of the effect."""

    def turn(self, kind: str, content: object) -> Any:
        """Records a message of the conversation; `kind` is `user`, `assistant`, …"""

    def checkpoint(self, messages: Sequence[object] = (), state: object = None, *, turn: int = 0) -> Any:
        """Records the state of the loop. Pass all messages; only new messages are written.

        While calls are in flight, the checkpoint lists as unanswered every call that was answered since no call was
        in flight: a process that resumes there gets these answers from the journal once more. If no call is in
        flight, no call may be answered between collecting `messages` and `state` and the start of this method."""

    def batch(self, payloads: Sequence[object]) -> Any:
        """Appends 1 to 4096 records that are applied together or not at all. Returns their ids, in order.

        Each is a payload as `GET /openapi.json` describes it, such as `{"type": "conversation_turn", …}`. Other
        methods write calls and checkpoints. Raises `Conflict` if one record was refused; then all are refused."""

    def prune_checkpoints(self, before: int | None = None, *, preserve_latest_terminal: bool = False) -> Any:
        """Hides checkpoints that cover less than `before` from answers; by default all except the last checkpoint.

        With `preserve_latest_terminal` the latest checkpoint after the run's end stays. Bytes stay in the log. The
        next checkpoint is written whole."""

    def end(self, status: str = "completed", reason: str = "") -> Any:
        """Ends the run as `completed`, `failed` or `cancelled`.

        An ended run answers recorded calls, and accepts its last checkpoint and the same end again. Any other
        operation raises `Conflict`: no effect runs, and no record is appended."""

    def leave(self) -> Any:
        """Records the results that interrupted calls hold, if there are any and the server answers. Raises no `Error`."""

    def reopen(self) -> Any:
        """Settles failed or cancelled operations, as the next operation would.

        Raises `ClaimLost` or `Fenced` if another process has the run; the log then has held results as evidence."""


class ConnectionOperations:
    """The operations of a connection."""

    def open(self, run_id: str, **options: Unpack[Opening]) -> Any:
        """Claims a run, new or not, and recovers it.

        * `unless_active`: raise `Active` if the run has a record that is younger than this many seconds.
        * `from_start`: resume at the start, not at the checkpoint: the journal answers all recorded calls. The same
          holds for a handle whose `recovery` was never read.
        * `allow_unresolved`: run new effects even while an older effect must be decided.
        * `on_divergence`: a new call without a key raises `Diverged`, and nothing runs, as long as recorded calls after the
          checkpoint were not asked for. `allow` permits it: for a program that does not make its calls again. A program that
          makes calls in several tasks or threads is only warned.
        """

    def run(self, run_id: str, **options: Unpack[Opening]) -> Any:
        """As `open`; inside the block, tools need no argument to find the run. Leaving it never ends the run,
        but records the results that interrupted calls hold, if the server answers. The handle stays usable."""

    def recover(self, run_id: str) -> Any:
        """Reads the state of a run, without claiming it; `None` for a run without records."""

    # For operators

    def runs(
        self,
        prefix: str = "",
        *,
        status: str | None = None,
        stuck: bool = False,
        in_doubt: bool = False,
        newest: bool = False,
        since: str | None = None,
    ) -> Any:
        """The runs, by id: `run_id`, `status`, `updated_at`, `epoch`, …

        `status` is `open` or how the run ended; `stuck` lists runs with an effect that waits for a decision; `in_doubt` lists
        open runs of a lost home, until an operator accepts them (`runlog home accept RUN`); `newest` lists by the time of the last
        record, and `since` (RFC 3339) only runs with a record since then."""

    def undecided(self, run_id: str | None = None) -> Any:
        """The effects of all runs, or of one, that may have happened and must be decided, with arguments and evidence.

        A token without the scope `read_content` gets masked contents."""

    def decide(
        self,
        effect: Any,
        decision: Literal["done", "adopt", "not_done", "give_up"],
        *,
        who: str,
        why: str,
        result: Any = ABSENT,
        against: str | None = None,
        force: bool = False,
    ) -> Any:
        """Records a decision about an effect that `undecided` returned: `done`, `adopt`, `not_done` or `give_up`.

        * `done` has the effect's `result`. `adopt` makes the evidence the result.
        * `not_done` lets the effect run again: make sure that no process can still do it. If evidence says that it happened,
          this raises `Conflict`, unless `against` names that evidence: `effect.against`.
        * `force`: decide although the effect's process may still record the result.

        Raises `Conflict` if the effect has changed since it was read: read it again, and decide again."""

    def lookup(self, run_id: str, tool: str, args: object, *, occurrence: int | None = None) -> Any:
        """Looks a call up: `status` is `completed`, `failed`, `pending` or `unknown`; `result`, `error`, `occurrences`, …

        Without `occurrence` it is the last call with these arguments. Raises `ResultNotRecorded` for a result that is not in the
        journal."""

    def tail(
        self, run_id: str | None = None, *, start: str = "beginning", until_end: bool = False, raw: bool = False
    ) -> Any:
        """Follows the records of a run, or of all runs, in the order of the log. Each has its `cursor`.

        `start` is `beginning`, `end` or a cursor, exclusive. If the connection is lost, the tail continues after the last record,
        and gives up after ten tries. From `end` it misses the records of a lost connection until it has received a record.
        With `until_end` it ends after the existing records. `raw` shows contents that are masked by privacy class."""
