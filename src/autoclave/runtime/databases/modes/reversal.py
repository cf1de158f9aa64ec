"""It is committed at once, and taken back by statements that it brings; of rows, only digests are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from secrets import token_hex

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Json, Reading
from autoclave.runtime.databases.modes.base import Rehearsed
from autoclave.runtime.databases.modes.images import ImagesMode
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.reversal.statements import in_words, reading_of_both
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt


class ReversalMode(ImagesMode):
    """By statements, which are tested before. Rows are kept for a redo of what was undone, and until it is recorded."""

    def read(self, sql: Sql, mode: Mode) -> Reading:
        return reading_of_both(self._databases.engine(sql.database), sql)

    def rehearse(self, sql: Sql, mode: Mode, reading: Reading) -> Rehearsed:
        reverse = self._databases.reverse(sql.database)
        told = tuple(in_words(reverse.tested(sql), sql))
        effect = self._databases.engine(sql.database).rehearse(sql, Mode.IMAGES)
        return Rehearsed(effect, reverse.outlined(effect), Guarantee.EQUIVALENT, told)

    def in_receipt(self, action: str, started: Json, effect: Effect) -> Json:
        shown = self._databases.reverse(started["database"]).outlined(effect)
        return {"kept_bytes": len(shown.to_text().encode())}

    def keep(self, action: str, receipt: Json) -> None:
        """The digests of rows are enough now."""
        images = receipt["images"]
        effect = self._databases.reverse(receipt["database"]).outlined(self._kept.get(action, images))
        self._kept.put(action, images, effect)
        self._kept.forget(action, receipt.get("past", ""))

    def contested(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        sql, effect = Sql.model_validate(receipt["operation"]), self._kept.get(action, receipt["images"])
        return self._databases.reverse(receipt["database"]).contested(sql, effect)

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        made = {default, *choices.values()}
        if made & {Choice.SKIP, Choice.SAVE_ASIDE} and self.contested(action, receipt):
            raise InputError(f"action {action}: the undo is statements: force it, or leave it as it is")
        told = {"act": receipt["images"], "operation": receipt["operation"], "forced": Choice.FORCE in made}
        return {**told, "images": f"undo-{token_hex(4)}"}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        """Run the statements that take it back, unless that was done before a crash."""
        database, images = undoing["database"], undoing["images"]
        if is_late and self._was_used(action, database, images):
            return
        sql, act = Sql.model_validate(undoing["operation"]), self._kept.get(action, undoing["act"])

        def keep(effect: Effect, mark: Json) -> None:
            self._kept.put(action, images, effect)
            self._kept.put_mark(action, images, mark)

        try:
            self._databases.reverse(database).use(sql, act, keep, is_forced=undoing["forced"])
        except InDoubt as error:
            if not self._was_used(action, database, images):
                raise HostError(f"{error}. Fix: try again when the database answers") from None

    def _was_used(self, action: str, database: str, images: str) -> bool:
        mark = self._kept.get_mark(action, images)
        return mark is not None and self._databases.engine(database).was_committed(mark, self._kept.get(action, images))
