"""It is committed at once, and taken back by writing the rows that were there before.

Before the commit, the effect and a mark are durable. Whoever finds the action unfinished asks the engine whether the
transaction of that mark was committed: so a crash leaves it done or not done, and known. To take it back is to write
the inverse of its effect, in one transaction, under a mark of its own; to do it again, the inverse of that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from secrets import token_hex

from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Contested, Json, Keep, Reading, Rejected
from autoclave.runtime.databases.modes.base import ActionMode, Rehearsed
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.rows import chosen
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, NotUndone


class ImagesMode(ActionMode):
    """By rows before and after. Whether statements are rehearsed on a copy of the database is the engine's business."""

    def rehearse(self, sql: Sql, mode: Mode, reading: Reading) -> Rehearsed:
        effect = self._databases.engine(sql.database).rehearse(sql, mode)
        guarantee = Guarantee.EQUIVALENT if effect.leaks else Guarantee.EXACT
        return Rehearsed(effect, effect, guarantee, has_evidence=effect.evidence is not None)

    def execute(self, action: str, sql: Sql, started: Json, keep: Keep, planned: Effect | None) -> None:
        self._databases.engine(sql.database).perform(sql, keep, planned)

    def was_done(self, action: str, started: Json, mark: Json) -> bool:
        return self._databases.engine(started["database"]).was_committed(mark, self._kept.get(action, "done"))

    def put_back(self, action: str, started: Json) -> bool:
        """Take back what was committed. What was not is rolled back by the database itself."""
        mark = self._kept.get_mark(action, "done")
        if mark is None:
            return True
        try:
            if self.was_done(action, started, mark):
                effect = self._kept.get(action, "done").inverse()
                self.write(action, "back", effect, started["database"], is_late=True)
        except (InDoubt, Contested, Rejected):
            return False
        return True

    def keep(self, action: str, receipt: Json) -> None:
        """Rows are where they stay."""

    def commit(self, action: str, receipt: Json) -> None:
        """Nothing is left open."""

    def contested(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        effect = self._kept.get(action, receipt["images"]).inverse()
        return self._databases.engine(receipt["database"]).contested(effect)

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        name = receipt["database"]
        effect = self._kept.get(action, receipt["images"]).inverse()
        contested = self._databases.engine(name).contested(effect)
        images = f"undo-{token_hex(4)}"
        self._kept.put(action, images, chosen(effect, contested, name, choices, default))
        return {"images": images}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        images = undoing["images"]
        try:
            self.write(action, images, self._kept.get(action, images), undoing["database"], is_late=is_late)
        except (Contested, Rejected) as error:
            raise NotUndone(f"{error}") from None
