"""Shared by all tests: property tests have no deadline, because an example's time says more of the machine than of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.services.fixtures import (  # noqa: F401 (fixtures for every test)
    influx_place,
    influxd,
    influxdb2_rules,
    influxdb3_rules,
    make_influx_place,
    nginx,
)

settings.register_profile("trainvitals", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainvitals")
