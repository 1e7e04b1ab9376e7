"""Shared by all tests: property tests have no deadline, because an example's time says more of the machine than of the code.

Where the decision falls (CI is set) they try the same examples every time; elsewhere they look for new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.services.fixtures import (  # noqa: F401 (fixtures for every test)
    influx_place,
    influxd,
    influxdb2_rules,
    influxdb3_rules,
    make_influx_place,
    nginx,
)
from tests.services.hung_storage import stopping_fs  # noqa: F401 (a fixture for every test)

settings.register_profile(
    "trainvitals", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("trainvitals")
