"""Shared by all tests: property tests have no deadline, because an example's time says more of the machine than of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("trainvitals", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainvitals")
