"""One end of the conversation between the cell of a check and the cell of a program. The judge carries the frames.

A frame is one byte, its kind, and a message. The side that sends a call or another request waits for the answer, and
serves requests of the other side meanwhile, so at any moment one side runs and the other waits. An object that cannot
be marshalled stays on its side under a number; the far side holds a handle, a proxy for it. On a handle `==` is
identity, `bool` and `hash` are local, names without leading `__` are forwarded, and no other operation works.

The texts of the marshalling modules, `python_program` and `failure` stand before this text.
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
    from autoclave.judge.runners.decoder import Decoder
    from autoclave.judge.runners.encoder import Encoder
    from autoclave.judge.runners.failure import account_of
    from autoclave.judge.runners.marshalling import NotPlainError, PartEncoder, fields_of, set_fields

CALL, REQUEST, ANSWER, END = b"C", b"Q", b"A", b"E"
_CHANNEL = 3
_READ_BYTES = 1 << 16
_MAX_EXPORTS = 100_000
_MAX_PREFETCH = 64
_NUM_SINGLE_ITEMS = 32


def framed(kind: bytes, message: bytes) -> bytes:
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
        """Return kind and message of the next frame. Ends the process when the channel is closed."""
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

    After some items it prefetches, twice as many each time, as long as no other request passes between the sides.
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
    """A generator of the other side; `isinstance` reports a generator."""

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


def remade(kind: "type[BaseException]", error: "Decoder") -> BaseException:
    """Return an exception of this class with the arguments and fields of one that the other side raised."""
    names = error.head[3:]
    args = error.values[: len(error.values) - len(names)]
    made = kind(*args) if kind.__module__ == "builtins" else kind.__new__(kind, *args)
    set_fields(made, dict(zip(names, error.values[len(args) :], strict=True)), error.own_fields)
    return made


class Peer:
    """One side: its exported objects, its handles for objects of the other side, and the lock of the channel."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.classes: dict[str, type] = {}
        self.names_of_classes: dict[type, str] = {}
        self.exceptions = dict(_EXCEPTIONS)
        self.copies_back = False
        self.own_fields: Mapping[str, Iterable[str]] | None = None
        self.num_requests = 0
        """Requests of both sides, without those of iterators."""
        self._exports: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._handles: dict[int, Handle] = {}
        self._channel_lock = _thread.allocate_lock()

    # A side defines these.

    def serve(self, kind: bytes, request: "Decoder") -> "tuple[list[Any], Decoder | None]":
        """Serve a request: the values of the answer, and the request if the states of its arguments go with them."""
        raise NotImplementedError

    def kind_of_export(self, value: Any) -> str:
        """Return the kind of handle for an object of this side; raises NotPlainError when it must not be exported."""
        raise NotImplementedError

    def rebuilt(self, error: "Decoder") -> BaseException:
        """Return the exception to raise for one that the other side raised."""
        raise NotImplementedError

    def abort(self, reason: str) -> Any:
        """End this process: the other side violates the protocol."""
        raise NotImplementedError

    def refuse(self, reason: str) -> Any:
        """End this process: the other side has sent a message that cannot be decoded."""
        return self.abort(reason)

    def fail(self, error: BaseException) -> Any:
        """End this process: `error` is not reported to the other side."""
        raise NotImplementedError

    # Requests to the other side.

    def call(self, number: int, args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> Any:
        """Call a function of the other side."""
        return self._send_request(CALL, ["call", number, list(kwargs)], [*args, *kwargs.values()])

    def request(self, head: "list[Any]", *values: Any) -> Any:
        """Send any other request to the other side."""
        return self._send_request(REQUEST, head, values)

    def _send_request(self, kind: bytes, head: "list[Any]", values: Any) -> Any:
        encoder = Encoder(self)
        try:
            message = encoder.message(head, values)
        except NotPlainError as error:
            raise TypeError(f"this cannot be handed over: {error}") from None
        answer = self._answer_to(kind, message, encoder)
        if answer.head[0] == "raise":
            raise self.rebuilt(answer)
        if answer.head[0] == "states":
            self._change(encoder, answer.values[1:])
        return answer.values[0]

    def _is_answer(self, kind: bytes, answer: "Decoder") -> bool:
        """Return whether the answer fits a request of this kind. Arguments change only with `copies_back`."""
        outcome, num_values = answer.head[0], len(answer.values)
        if outcome == "states":
            return kind == CALL and self.copies_back and num_values > 0
        return outcome == "raise" or (outcome == "value" and num_values == 1)

    def _answer_to(self, requested: bytes, message: bytes, encoder: "Encoder") -> "Decoder":
        with self._channel_lock:
            self.num_requests += 1
            self.channel.send(requested, message)
            while True:
                kind, message = self.channel.receive()
                if kind != ANSWER:
                    self.answer(kind, message)
                    continue
                answer = self._read(message, encoder if self.copies_back else None)
                return answer if self._is_answer(requested, answer) else self.abort("not an answer")

    def _read(self, message: bytes, encoder: "Encoder | None" = None) -> "Decoder":
        try:
            decoder = Decoder(self, message, encoder, self.own_fields)
        except NotPlainError as error:
            return self.refuse(str(error))
        return decoder if type(decoder.head) is list and decoder.head else self.abort("no head")

    def _change(self, encoder: "Encoder", states: "list[Any]") -> None:
        try:
            encoder.apply_states(states, self.own_fields)
        except NotPlainError as error:
            self.refuse(str(error))

    # Requests of the other side.

    def answer(self, kind: bytes, message: bytes) -> None:
        """Serve one request. This thread holds the channel; other threads may take it while the request is served."""
        self.num_requests += 1
        request = self._read(message)
        self._channel_lock.release()
        try:
            answer = self._served(kind, request)
        except BaseException as error:  # noqa: BLE001  such as SystemExit
            answer = self.fail(error)
        finally:
            self._channel_lock.acquire()
        self.channel.send(ANSWER, answer)

    def _served(self, kind: bytes, request: "Decoder") -> bytes:
        try:
            values, states_of = self.serve(kind, request)
            head = ["states" if states_of else "value"]
            return Encoder(self, states_of).message(head, values, states_of)
        except NotPlainError as error:
            return Encoder(self).message(["raise", "TypeError", "- TypeError 0"], [f"this cannot be returned: {error}"])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  the other side handles any exception
            return self._encoded_error(error)

    def _encoded_error(self, error: Exception) -> bytes:
        kind = next(kind for kind in type(error).__mro__ if self.exceptions.get(kind.__name__) is kind)
        head = ["raise", kind.__name__, account_of(error)]
        fields = dict(fields_of(error)) if kind.__module__ != "builtins" else {}
        try:
            if kind is AssertionError:
                return Encoder(self).message(head)
            return Encoder(self).message([*head, *fields], [*error.args, *fields.values()])
        except Exception:  # noqa: BLE001  arguments that cannot be marshalled; the name is enough
            return Encoder(self).message(head)

    def exported_object(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._exports):
            return self.abort("an unknown object")
        return self._exports[number]

    # The methods of a ProxyProtocol.

    def exported(self, value: Any, encoder: "PartEncoder", depth: int) -> Any:
        if type(value) in _HANDLES.values():
            return {"handle": ["yours", value._Handle__number]}
        kind = self.kind_of_export(value)
        key = (id(value.__self__), value.__func__) if type(value) is types.MethodType else id(value)
        number = self._numbers.get(key)
        if number is None:
            if len(self._exports) == _MAX_EXPORTS:
                raise NotPlainError("too many objects")
            number = self._numbers[key] = len(self._exports)
            self._exports.append(value)
        return {"handle": ["mine", number, kind]}

    def imported(self, content: Any) -> Any:
        owner, number, *kind = content
        if owner == "yours":
            return self.exported_object(number)
        if type(number) is not int:
            raise NotPlainError("malformed data")
        if number not in self._handles:
            if len(self._handles) == _MAX_EXPORTS:
                raise NotPlainError("too many objects")
            self._handles[number] = _HANDLES[kind[0]](self, number, kind[0])
        return self._handles[number]

    def register_classes(self, namespace: "dict[str, Any]", preamble: types.CodeType) -> None:
        """Marshal objects of the classes that the preamble has defined in `namespace` as their fields.

        Inspects only the names of the preamble: reading the thousand that a profile defines would copy their pages.
        """
        for name in preamble.co_names:
            kind = namespace.get(name)
            if isinstance(kind, type) and getattr(kind, "__module__", None) == namespace["__name__"]:
                self.classes[name] = kind
                self.names_of_classes[kind] = name
                if issubclass(kind, Exception):
                    self.exceptions[kind.__name__] = kind
