"""One end of the conversation between the cell of a check and the cell of a program. The judge carries the frames.

A frame is one byte, its kind, and a message. Who sends a call or a question waits for the answer, and serves what the
other side asks meanwhile, so at any moment one side runs and the other waits. Objects that cannot cross stay where
they are and have a number; the far side holds a handle for it. On a handle `==` is identity, `bool` and `hash` are
local, names without leading `__` are forwarded, and nothing else works.

The texts of `crossing`, `python_program` and `failure` stand before this text.
"""
# Everything here is about values of unknown type.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

import _thread
import builtins
import os
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoclave.judge.runners.crossing import NotPlainError, Reader, Writer, fields_of, set_fields
    from autoclave.judge.runners.failure import account_of

CALL, REQUEST, ANSWER, END = b"C", b"Q", b"A", b"E"
_CHANNEL = 3
_READ_BYTES = 1 << 16
_MAX_EXPORTS = 100_000
_MAX_PREFETCH = 64
_NUM_SINGLE_ITEMS = 32


def framed(kind: bytes, message: bytes) -> bytes:
    """A frame as it stands on the channel."""
    return (len(message) + 1).to_bytes(4, "big") + kind + message


class Channel:
    """Frames on the channel of a test."""

    def __init__(self) -> None:
        self._received = bytearray()

    def send(self, kind: bytes, message: bytes) -> None:
        left = memoryview(framed(kind, message))
        while left:
            left = left[os.write(_CHANNEL, left) :]

    def receive(self) -> "tuple[bytes, bytes]":
        """The next frame, its kind and its message. Ends the process when there will be none."""
        received = self._received
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            content = os.read(_CHANNEL, _READ_BYTES)
            if not content:
                os._exit(0)
            received += content
        end = 4 + int.from_bytes(received[:4], "big")
        kind, message = bytes(received[4:5]), bytes(received[5:end])
        del received[:end]
        return kind, message


class Handle:
    """An object of the other side."""

    __slots__ = ("__name__", "__number", "__peer", "__weakref__")

    def __init__(self, peer: "Peer", number: int, name: str) -> None:
        object.__setattr__(self, "_Handle__peer", peer)
        object.__setattr__(self, "_Handle__number", number)
        object.__setattr__(self, "__name__", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{name} is not forwarded to the program")
        return self.__peer.request(["get", self.__number, name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            raise AttributeError(f"{name} is not forwarded to the program")
        self.__peer.request(["set", self.__number, name], value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError("attributes of the program's objects cannot be deleted")

    def __reduce__(self) -> Any:
        raise TypeError("an object of the program cannot be copied")


class FunctionHandle(Handle):
    """A callable object of the other side."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._Handle__peer.call(self._Handle__number, args, kwargs)  # type: ignore[attr-defined]


class IteratorHandle(Handle):
    """An iterator of the other side.

    After some items it is read ahead, twice as far each time, as long as nothing else passes between the two sides.
    """

    __slots__ = ("__ahead", "__end", "__num_requests", "__num_single", "__step")

    def __init__(self, peer: "Peer", number: int, name: str) -> None:
        super().__init__(peer, number, name)
        self.__become(ahead=[], end=None, step=1, num_single=0, num_requests=peer.num_requests)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not self.__ahead and not self.__end:
            self.__read()
        if self.__ahead:
            return self.__ahead.pop()
        values = self.__end
        self.__become(end=[None])
        raise StopIteration(*(value for value in values if value is not None))

    def __read(self) -> None:
        peer = self._Handle__peer  # type: ignore[attr-defined]
        if peer.num_requests != self.__num_requests:
            self.__become(step=1, num_single=0)
        elif self.__num_single < _NUM_SINGLE_ITEMS:
            self.__become(num_single=self.__num_single + 1)
        else:
            self.__become(step=min(2 * self.__step, _MAX_PREFETCH))
        self.__become(num_requests=peer.num_requests + 1)
        is_over, value, *items = peer.request(["next", self._Handle__number, self.__step])  # type: ignore[attr-defined]
        self.__become(ahead=items[::-1], end=[value] if is_over is True else None)

    def __become(self, **state: Any) -> None:
        for name, value in state.items():
            object.__setattr__(self, f"_IteratorHandle__{name}", value)


class GeneratorHandle(IteratorHandle):
    """A generator of the other side, which `isinstance` takes for one of this side."""

    __slots__ = ()
    __class__ = types.GeneratorType  # type: ignore[assignment]


_HANDLES = {
    "object": Handle,
    "function": FunctionHandle,
    "iterator": IteratorHandle,
    "generator": GeneratorHandle,
}
_EXCEPTIONS: "dict[str, type[Exception]]" = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}


def remade(kind: "type[BaseException]", error: "Reader") -> BaseException:
    """The exception of this class, with the arguments and fields of one that was raised on the other side."""
    names = error.head[3:]
    args = error.values[: len(error.values) - len(names)]
    made = kind(*args) if kind.__module__ == "builtins" else kind.__new__(kind, *args)
    set_fields(made, dict(zip(names, error.values[len(args) :], strict=True)), error.own_fields)
    return made


class Peer:
    """One side: what it lent to the other, what it holds of the other, and whose turn it is."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.classes: dict[str, type] = {}
        self.names_of_classes: dict[type, str] = {}
        self.exceptions = dict(_EXCEPTIONS)
        self.copies_back = False
        self.own_fields: Mapping[str, Iterable[str]] | None = None
        self.num_requests = 0
        """Requests of either side, but for those that an iterator makes."""
        self._lent: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._held: dict[int, Handle] = {}
        self._turn = _thread.allocate_lock()

    # What a side must define.

    def serve(self, kind: bytes, request: "Reader") -> "tuple[list[Any], Reader | None]":
        """Do what is asked: the values of the answer, and the request if its arguments' state goes with them."""
        raise NotImplementedError

    def kind_of_export(self, value: Any) -> str:
        """Return how the other side may use an object of this side; raises NotPlainError when not at all."""
        raise NotImplementedError

    def rebuilt(self, error: "Reader") -> BaseException:
        """The exception to raise for one that was raised on the other side."""
        raise NotImplementedError

    def abort(self, reason: str) -> Any:
        """End this process: the other side does not keep to the rules."""
        raise NotImplementedError

    def refuse(self, reason: str) -> Any:
        """End this process: the other side has sent what cannot be read."""
        return self.abort(reason)

    def fail(self, error: BaseException) -> Any:
        """End this process: `error` is none that is told to the other side."""
        raise NotImplementedError

    # Asking.

    def call(self, number: int, args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> Any:
        """Call a function of the other side."""
        return self._send_request(CALL, ["call", number, list(kwargs)], [*args, *kwargs.values()])

    def request(self, head: "list[Any]", *values: Any) -> Any:
        """Ask the other side for something else."""
        return self._send_request(REQUEST, head, values)

    def _send_request(self, kind: bytes, head: "list[Any]", values: Any) -> Any:
        writer = Writer(self)
        try:
            message = writer.message(head, values)
        except NotPlainError as error:
            raise TypeError(f"this cannot be handed over: {error}") from None
        answer = self._answer_to(kind, message, writer)
        if answer.head[0] == "raise":
            raise self.rebuilt(answer)
        if answer.head[0] == "states":
            self._change(writer, answer.values[1:])
        return answer.values[0]

    def _is_answer(self, kind: bytes, answer: "Reader") -> bool:
        """Return whether a request of this kind may be answered so. Arguments change only where that was agreed on."""
        how, num_values = answer.head[0], len(answer.values)
        if how == "states":
            return kind == CALL and self.copies_back and num_values > 0
        return how == "raise" or (how == "value" and num_values == 1)

    def _answer_to(self, requested: bytes, message: bytes, writer: "Writer") -> "Reader":
        with self._turn:
            self.num_requests += 1
            self.channel.send(requested, message)
            while True:
                kind, message = self.channel.receive()
                if kind != ANSWER:
                    self.answer(kind, message)
                    continue
                answer = self._read(message, writer if self.copies_back else None)
                return answer if self._is_answer(requested, answer) else self.abort("not an answer")

    def _read(self, message: bytes, writer: "Writer | None" = None) -> "Reader":
        try:
            reader = Reader(self, message, writer, self.own_fields)
        except NotPlainError as error:
            return self.refuse(str(error))
        return reader if type(reader.head) is list and reader.head else self.abort("no head")

    def _change(self, writer: "Writer", states: "list[Any]") -> None:
        try:
            writer.put(states, self.own_fields)
        except NotPlainError as error:
            self.refuse(str(error))

    # Answering.

    def answer(self, kind: bytes, message: bytes) -> None:
        """Serve one request. This thread has the turn; while the request is served, others may take it."""
        self.num_requests += 1
        request = self._read(message)
        self._turn.release()
        try:
            answer = self._served(kind, request)
        except BaseException as error:  # noqa: BLE001  such as SystemExit
            answer = self.fail(error)
        finally:
            self._turn.acquire()
        self.channel.send(ANSWER, answer)

    def _served(self, kind: bytes, request: "Reader") -> bytes:
        try:
            values, states_of = self.serve(kind, request)
            head = ["states" if states_of else "value"]
            return Writer(self, states_of).message(head, values, states_of)
        except NotPlainError as error:
            return Writer(self).message(["raise", "TypeError", "- TypeError 0"], [f"this cannot be returned: {error}"])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is the other side's to handle
            return self._encoded_error(error)

    def _encoded_error(self, error: Exception) -> bytes:
        kind = next(kind for kind in type(error).__mro__ if self.exceptions.get(kind.__name__) is kind)
        head = ["raise", kind.__name__, account_of(error)]
        fields = dict(fields_of(error)) if kind.__module__ != "builtins" else {}
        try:
            if kind is AssertionError:
                return Writer(self).message(head)
            return Writer(self).message([*head, *fields], [*error.args, *fields.values()])
        except Exception:  # noqa: BLE001  arguments that cannot cross; the name can
            return Writer(self).message(head)

    def borrowed(self, number: Any) -> Any:
        """The object of this side that the other means."""
        if type(number) is not int or not 0 <= number < len(self._lent):
            return self.abort("an unknown object")
        return self._lent[number]

    # What a Border must offer.

    def exported(self, value: Any, writer: "Writer", depth: int) -> Any:
        if type(value) in _HANDLES.values():
            return {"handle": ["yours", value._Handle__number]}
        kind = self.kind_of_export(value)
        key = (id(value.__self__), value.__func__) if type(value) is types.MethodType else id(value)
        number = self._numbers.get(key)
        if number is None:
            if len(self._lent) == _MAX_EXPORTS:
                raise NotPlainError("too many objects")
            number = self._numbers[key] = len(self._lent)
            self._lent.append(value)
        return {"handle": ["mine", number, kind]}

    def imported(self, content: Any) -> Any:
        owner, number, *kind = content
        if owner == "yours":
            return self.borrowed(number)
        if type(number) is not int:
            raise NotPlainError("malformed data")
        if number not in self._held:
            if len(self._held) == _MAX_EXPORTS:
                raise NotPlainError("too many objects")
            self._held[number] = _HANDLES[kind[0]](self, number, kind[0])
        return self._held[number]

    def learn_classes(self, namespace: "dict[str, Any]", preamble: types.CodeType) -> None:
        """The classes that the preamble has defined in `namespace` cross as fields.

        Only its own names are looked at: to touch the thousand that a profile defines would copy their pages.
        """
        for name in preamble.co_names:
            kind = namespace.get(name)
            if isinstance(kind, type) and getattr(kind, "__module__", None) == namespace["__name__"]:
                self.classes[name] = kind
                self.names_of_classes[kind] = name
                if issubclass(kind, Exception):
                    self.exceptions[kind.__name__] = kind
