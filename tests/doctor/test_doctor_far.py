"""What the doctor says of the key for requests that come from another host."""

from tests.doctor.looking import look, says, settings_of
from trainvitals.doctor.check import FAULT, OK

CHECK = "signed requests"


def test_a_run_that_shares_its_directory_needs_no_key(place):
    assert says(look(settings_of(place), CHECK), OK, "not needed")[0]


def test_a_key_that_is_missing_short_or_there(place):
    far = {"control_road": "store"}
    assert says(look(settings_of(place, far), CHECK), FAULT, "There is no key for signed requests")[0]
    key = place / "key"
    key.write_text("short")
    key.chmod(0o600)
    settings = settings_of(place, far, requests={"key_files": [str(key)]})
    assert says(look(settings, CHECK), FAULT, "has 5 bytes; it needs at least 32")[0]
    key.write_text("k" * 40)
    found = look(settings, CHECK)
    assert says(found, OK, "1 key; the first one signs")[0] and not any("kkk" in text for _, text in found)


def test_the_dashboards_host_misses_nothing_of_a_directory_that_lies_elsewhere(place):
    key = place / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    settings = settings_of(place, {"control_road": "store", "dir": str(place / "no")}, requests={"key_files": [str(key)]})
    assert {state for state, _ in (*look(settings, "control"), *look(settings, CHECK))} == {OK}
