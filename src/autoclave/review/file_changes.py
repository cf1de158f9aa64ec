"""Changes of an action to files, before and after, from its receipt, its stash and the tree. Reads only.

What an action left at a path is in the tree, or, where a later action replaced it, in the stash of that one.
"""

import contextlib
import itertools
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from autoclave.core import InputError
from autoclave.core.line_diff import Work
from autoclave.review.answers import shortened
from autoclave.review.line_diff import compared, text_of
from autoclave.runtime.actions import Actions
from autoclave.runtime.files.difference import Found, found_at
from autoclave.runtime.files.operations import key_of
from autoclave.runtime.files.plans import steps_from
from autoclave.runtime.files.reading import PRIVATE_KEY
from autoclave.runtime.files.scope import Scope
from autoclave.runtime.files.steps import Step
from autoclave.runtime.files.tree_digest import tree_digest
from autoclave.runtime.interface import Json
from autoclave.runtime.policy.grants import is_secret

MOST_IMAGE_BYTES = 8 << 20
_MOST_CHANGES = 200
_STEPS_OF_A_LINE = 200
_MOST_LATER = 1000
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_HIDDEN = "Not shown: it may hold keys or passwords."
_CONTENTS = ("content", "content_base64", "old_string", "new_string")
Place = tuple[Path | None, str]
"""The folder of an action in the stash (None: the tree), and a path in it."""


class FileChanges:
    """The changes of actions to the folder of `scope`. `stash` is where their pre-images are."""

    def __init__(self, actions: Actions, scope: Scope, stash: Path) -> None:
        self._actions, self._scope, self._stash = actions, scope, stash

    def of_receipt(self, action: str, receipt: Json, number: int, *, is_done: bool) -> Iterator[dict[str, Any]]:
        """Yield the changes of an action, or of its plan. `number`: the record that the tree was as it says."""
        changes, work = self._flat(action, receipt, number, is_done=is_done), Work()
        for index, (step, path, old, new) in enumerate(itertools.islice(changes, _MOST_CHANGES)):
            yield {**self._change(step, path, old, new, receipt, number, work, is_done=is_done), "index": index}
        if next(changes, None):
            yield {"kind": "words", "verb": "more", "path": f"only the first {_MOST_CHANGES} changes are shown"}

    def of_proposal(self, operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the changes of an operation that is planned from its data alone."""
        do, path = operation["do"], str(operation.get("path", ""))
        if do not in ("write", "append", "edit", "delete") or operation.get("content_base64"):
            return
        old = self._side((None, path))
        content, found, replaced = (
            str(operation.get(name, "")).encode("utf-8", "surrogateescape")
            for name in ("content", "old_string", "new_string")
        )
        if do == "append":
            content = (old.content or b"") + content
        elif do == "edit":
            content = (old.content or b"").replace(found, replaced)
        new = Found() if do == "delete" else Found("a file", old.mode, len(content), content)
        yield {**self._compared(path, old, new, Work()), "index": 0}

    def image(self, action: str, receipt: Json, number: int, index: int, side: str, *, is_done: bool) -> Found:
        """Return a side of a change, by the `index` that it was told with. Raises InputError where it is no image."""
        changes = self._flat(action, receipt, number, is_done=is_done)
        _, path, *sides = next(itertools.islice(changes, index, None), (None, "", Found(), Found()))
        found = sides[0 if side == "before" else 1]
        if not image_type(found) or _is_hidden(path, found):
            raise InputError(f"action {action}: what is {side} change {index} is not an image")
        return found

    def _flat(
        self, action: str, receipt: Json, number: int, *, is_done: bool
    ) -> Iterator[tuple[Step, str, Found, Found]]:
        """Yield each path that an action changed, with what was there before and after; of a folder all in it."""
        for step in steps_from(receipt["steps"]):
            if step.do in ("move", "set_facts"):
                yield step, step.path, Found(), Found()
                continue
            stashed = self._files_at((self._stash / action, step.stash), step.path)
            in_tree = self._files_left(step.path, number)
            old, new = (stashed, in_tree) if is_done else (in_tree, stashed)
            old, new = {} if step.do == "put" else old, {} if step.do == "take" else new
            for path in sorted(old.keys() | new.keys()):
                yield step, path, self._side(old.get(path)), self._side(new.get(path))

    def _change(
        self, step: Step, path: str, old: Found, new: Found, receipt: Json, number: int, work: Work, *, is_done: bool
    ) -> dict[str, Any]:
        if step.do == "move":
            return {"kind": "words", "verb": "renamed", "path": step.path, "after": step.to}
        if step.do == "set_facts":
            facts = [
                [name, *(_fact(name, each.get(name)) for each in (step.old_facts, step.facts))] for name in step.facts
            ]
            return {"kind": "facts", "verb": "changed", "path": step.path, "facts": facts}
        change = self._compared(path, old, new, work)
        was = str(receipt.get("after", {}).get(path, ""))
        if is_done and was and self._later(path, number) == (None, path):
            with contextlib.suppress(InputError):
                if new.num_bytes <= MOST_IMAGE_BYTES and tree_digest(path, self._scope, was) != was:
                    change.setdefault("note", "Another program has changed it since; this is what is there now.")
        return change

    def _steps_after(self, path: str, number: int) -> Iterator[tuple[int, str, Step]]:
        """Yield the steps of later actions that touched a path, or something above or below it, in order."""
        for after, action in sorted(self._actions.journal.touching({key_of(path)}, number))[:_MOST_LATER]:
            for step in steps_from(self._actions.receipt(action).get("steps", ())):
                yield after, action, step

    def _later(self, path: str, number: int) -> Place:
        """Return where is now what was at a path after a record."""
        for after, action, step in self._steps_after(path, number):
            if _is_in(path, step.path):
                rest = path.removeprefix(step.path)
                if step.do in ("take", "exchange"):
                    return self._stash / action, f"{step.stash}{rest}"
                if step.do == "move":
                    return self._later(f"{step.to}{rest}", after)
        return None, path

    def _files_left(self, path: str, number: int) -> dict[str, Place]:
        """Return where is now what was at and below a path after a record: not what later actions brought there."""
        absent, moved = list[str](), dict[str, dict[str, Place]]()
        for after, action, step in self._steps_after(path, number):
            if step.do in ("take", "exchange", "move") and _is_in(path, step.path):
                break  # all of it went
            is_new = not any(_is_in(step.path, each) for each in (*absent, *moved))
            if is_new and step.path != path and _is_in(step.path, path):
                if step.do == "put":
                    absent.append(step.path)
                elif step.do in ("take", "exchange"):
                    moved[step.path] = self._files_at((self._stash / action, step.stash), step.path)
                elif step.do == "move":
                    moved[step.path] = self._files_at(self._later(step.to, after), step.path)
            if step.do == "move" and _is_in(step.to, path):
                absent.append(step.to)
        found = self._files_at(self._later(path, number), path)
        kept = {each: at for each, at in found.items() if not any(_is_in(each, gone) for gone in (*absent, *moved))}
        return kept | {each: at for files in moved.values() for each, at in files.items()}

    def _files_at(self, place: Place, path: str) -> dict[str, Place]:
        """Return the places of all but folders at and below a place, by their paths as if it were called `path`."""
        folder, base = place
        if not base:
            return {}
        names: list[str] = []
        with contextlib.suppress(InputError), self._opened(folder) as scope:
            for above, _, inside in scope.folders(base):
                names += [f"{above}/{each.name}" for each in inside if not each.is_dir(follow_symlinks=False)]
                if len(names) > _MOST_CHANGES:
                    break
        return {f"{path}{name.removeprefix(base)}": (folder, name) for name in sorted(names) or [base]}

    def _opened(self, folder: Path | None) -> AbstractContextManager[Scope]:
        return Scope(folder) if folder else contextlib.nullcontext(self._scope)

    def _side(self, place: Place | None) -> Found:
        if place is None:
            return Found()
        folder, path = place
        try:
            with self._opened(folder) as scope:
                return found_at(scope, path, MOST_IMAGE_BYTES)
        except FileNotFoundError:
            return Found()
        except InputError as error:
            return Found("" if folder and not folder.exists() else f"something that cannot be read ({error})")
        except OSError as error:
            return Found(f"something that cannot be read ({error.strerror})")

    def _compared(self, path: str, old: Found, new: Found, work: Work) -> dict[str, Any]:
        verb = "created" if not old.told else "deleted" if not new.told else "changed"
        change: dict[str, Any] = {"verb": verb, "path": path}
        if old.told and new.told and stat.S_IMODE(old.mode) != stat.S_IMODE(new.mode):
            change["facts"] = [["mode", f"{stat.S_IMODE(old.mode):o}", f"{stat.S_IMODE(new.mode):o}"]]
        words = {"before": _words(old), "after": _words(new)}
        if any(_is_hidden(path, side) for side in (old, new)):
            return {**change, "kind": "words", **words, "note": _HIDDEN}
        if any(map(image_type, (old, new))):
            return {**change, "kind": "image", **words, "has": [bool(image_type(each)) for each in (old, new)]}
        texts = [text_of(side.content) if side.content is not None else None for side in (old, new)]
        texts = ["" if not side.told else text for side, text in zip((old, new), texts, strict=True)]
        if texts[0] is None or texts[1] is None:
            return {**change, "kind": "words", **words}
        if work.left <= 0:
            return {**change, "kind": "words", **words, "note": "Not compared: the changes above are long."}
        lines = compared(texts[0], texts[1], work)
        work.left -= _STEPS_OF_A_LINE * len(lines["lines"])
        return {**change, "kind": "text", **words, **lines}


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or below it."""
    return path == folder or path.startswith(f"{folder}/")


def image_type(side: Found) -> str:
    """Return the media type of an image of a kind that browsers show safely; empty for anything else."""
    content = side.content or b""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if content.startswith(magic)), "")


def without_secrets(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operation without content that is not shown in its changes either."""
    given = {name: value for name, value in operation.items() if name in _CONTENTS and isinstance(value, str)}
    content = "\n".join(given.values()).encode("utf-8", "surrogateescape")
    is_hidden = _is_hidden(str(operation.get("path", "")), Found(content=content))
    return {**operation, **(dict.fromkeys(given, _HIDDEN) if is_hidden else {})}


def _is_hidden(path: str, side: Found) -> bool:
    return is_secret(path) or bool(side.content and PRIVATE_KEY.search(side.content))


def _words(side: Found) -> str:
    if not side.told.startswith("a file"):
        return shortened(side.told, 4000)
    return f"{side.num_bytes} bytes"


def _fact(name: str, value: Any) -> str:
    return f"{value:o}" if name == "mode" and isinstance(value, int) else shortened(f"{value}", 500)
