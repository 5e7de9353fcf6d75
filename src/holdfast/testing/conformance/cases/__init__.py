"""The cases, by subject. Each class is a part of the suite."""

from __future__ import annotations

from typing import Final

from holdfast.testing.conformance.cases.acquiring import AcquiringCases
from holdfast.testing.conformance.cases.barriers import BarrierCases
from holdfast.testing.conformance.cases.bodies import AsyncBodyCases
from holdfast.testing.conformance.cases.breaking import BreakingCases
from holdfast.testing.conformance.cases.callers import CallerCases
from holdfast.testing.conformance.cases.cancelling import CancellingCases
from holdfast.testing.conformance.cases.closing import ClosingCases
from holdfast.testing.conformance.cases.conditions import ConditionCases, RefusedConditionCases
from holdfast.testing.conformance.cases.decorating import DecoratingCases
from holdfast.testing.conformance.cases.detaching import DetachingCases, DetachingRefusedCases
from holdfast.testing.conformance.cases.dying import DyingCases, InterruptedCases
from holdfast.testing.conformance.cases.elections import ElectionCases, ElectionRefusedCases
from holdfast.testing.conformance.cases.exclusion import ExclusionCases
from holdfast.testing.conformance.cases.fairness import FairnessCases, HandOverCases
from holdfast.testing.conformance.cases.inspecting import InspectingCases
from holdfast.testing.conformance.cases.latches import LatchCases, RegistersRefusedCases
from holdfast.testing.conformance.cases.lifetime import LifetimeCases
from holdfast.testing.conformance.cases.loops import LoopCases
from holdfast.testing.conformance.cases.losing import LosingCases
from holdfast.testing.conformance.cases.monitors import MonitorCases, RefusedMonitorCases
from holdfast.testing.conformance.cases.naming import NamingCases
from holdfast.testing.conformance.cases.observing import ObservingCases
from holdfast.testing.conformance.cases.permits import KilledPermitCases, OfferedPermitCases, PermitCases
from holdfast.testing.conformance.cases.portability import PortabilityCases
from holdfast.testing.conformance.cases.reentry import ReentryCases
from holdfast.testing.conformance.cases.renewing import RenewingCases
from holdfast.testing.conformance.cases.several import MultiLockCases
from holdfast.testing.conformance.cases.sharing import KilledReaderCases, OfferedSharingCases, SharingCases

ALL: Final = (
    AcquiringCases,
    ExclusionCases,
    ReentryCases,
    CallerCases,
    LifetimeCases,
    RenewingCases,
    LosingCases,
    BreakingCases,
    InspectingCases,
    NamingCases,
    ClosingCases,
    FairnessCases,
    HandOverCases,
    AsyncBodyCases,
    CancellingCases,
    LoopCases,
    PortabilityCases,
    DecoratingCases,
    MultiLockCases,
    DetachingCases,
    DetachingRefusedCases,
    LatchCases,
    BarrierCases,
    ElectionCases,
    ElectionRefusedCases,
    RegistersRefusedCases,
    ObservingCases,
    ConditionCases,
    RefusedConditionCases,
    MonitorCases,
    RefusedMonitorCases,
    DyingCases,
    InterruptedCases,
    OfferedSharingCases,
    SharingCases,
    KilledReaderCases,
    OfferedPermitCases,
    PermitCases,
    KilledPermitCases,
)
