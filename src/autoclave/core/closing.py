"""Base of objects that a `with` statement closes."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Gives itself to a `with` statement, and is closed at its end however that ends."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds. Further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
