"""A client whose requests take effect, and whose replies are lost; or that are lost before they arrive."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.engines.base import RequestFailed

Loss = Literal["reply", "request", "late"]


class LossyRequests:
    """Stands before a session, or its registers, and loses the given calls of one method, in order.

    "reply": it takes effect, and the answer is lost. "request": it never arrives. "late": it arrives after all others,
    with ``deliver``.
    """

    def __init__(self, inner: Any, method: str, losses: list[Loss]) -> None:
        self._inner = inner
        self._method = method
        self._losses = losses
        self._late: list[tuple[Any, Any]] = []
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name != self._method:
            return real

        async def lossy(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            loss = self._losses.pop(0) if self._losses else None
            if loss == "late":
                self._late.append((arguments, keywords))
            elif loss != "request":
                answer = await real(*arguments, **keywords)
                if loss is None:
                    return answer
            raise RequestFailed(f"the {loss} was lost", may_have_happened=True)

        return lossy

    async def deliver(self) -> list[Any]:
        """Have the late requests arrive now; their answers."""
        late, self._late = self._late, []
        return [await getattr(self._inner, self._method)(*arguments, **keywords) for arguments, keywords in late]


class WithRegisters:
    """A session with other registers."""

    def __init__(self, session: Any, registers: Any) -> None:
        self._session = session
        self.registers = registers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def lose_of_registers(client: Any, method: str, *losses: Loss) -> LossyRequests:
    """The same for its registers."""
    core = client._open()
    lossy = LossyRequests(core.session.registers, method, list(losses))
    core.session = WithRegisters(core.session, lossy)
    return lossy


def lose(client: Any, method: str, *losses: Loss) -> LossyRequests:
    """From now on, the client's calls of ``method`` of its session are lost in this way, one after another."""
    core = client._open()
    core.session = lossy = LossyRequests(core.session, method, list(losses))
    core.direct = None  # every request goes through the session's methods
    return lossy
