"""Writers that are many, killed, bad or patient, against a real InfluxDB."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

from chaos_tools import spool_counters, stored_steps, wait_until
from chaos_writer import BASE_NS, open_spool, point

from tests.services.influx_server import count_rows
from trainvitals.store.spool_codec import decode_batch

#: What the process may grow by while 180,000 points more pile up on its disk.
FLAT_BYTES = 24 * 1024 * 1024


def test_twenty_kills_of_a_writer_lose_nothing_it_was_told_and_repeat_nothing(server, start_writer, tmp_path):
    databases = server.make_databases()
    chance = random.Random(7)
    acknowledged = -1
    for _ in range(20):
        writer = start_writer(url=server.url, databases=databases, run="r", batch=7, pause_s=0.01)
        assert wait_until(lambda: writer.acknowledged > acknowledged, 30)  # noqa: B023
        threading.Event().wait(chance.random() * 0.6)
        writer.kill()
        acknowledged = max(acknowledged, writer.acknowledged)
    last = start_writer(url=server.url, databases=databases, run="r", count=1)
    path = tmp_path / "spool" / "a.spool"
    assert wait_until(lambda: spool_counters(path)["waiting"] == 0, 60)
    last.end()
    stored = stored_steps(server, databases[1], "r")
    # The last append may have been stored and not told: then its numbers are there too, once.
    assert sorted(stored) == list(range(len(stored))) and len(stored) >= acknowledged + 1
    assert spool_counters(path)["appended"] == len(stored)


def test_eight_writers_on_one_spool_file_deliver_everything_once(server, start_writer, tmp_path):
    databases = server.make_databases()
    writers = [start_writer(url=server.url, databases=databases, run=f"r{number}", batch=5, count=1_000) for number in range(8)]
    for writer in writers:
        assert writer.is_done.wait(90)
    path = tmp_path / "spool" / "a.spool"
    assert wait_until(lambda: spool_counters(path)["waiting"] == 0, 60)
    for writer in writers:
        writer.end()
    for number in range(8):
        assert sorted(stored_steps(server, databases[1], f"r{number}")) == list(range(1_000))
    count = spool_counters(path)
    assert count["appended"] == count["delivered"] == 8_000


def test_points_that_the_server_will_never_take_are_dead_letters_and_can_be_sent_again(server, tmp_path):
    databases = server.make_databases()
    # Somebody wrote text where this schema has a number: the server refuses the number from then on, in that week's shard.
    server.query('CREATE RETENTION POLICY other ON "' + databases[1] + '" DURATION INF REPLICATION 1')
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", f"/write?db={databases[1]}", f'train,run=x,attempt=1 mfu="text" {BASE_NS}'.encode())
    assert connection.getresponse().status == 204
    connection.close()
    bad = {3, 77, 78, 500, 999}
    points = [point("r", number) for number in range(1_000)]
    points = [replace(each, fields={**each.fields, "mfu": 0.5}) if each.fields["step"] in bad else each for each in points]
    spool = open_spool({"spool": str(tmp_path / "a.spool"), "url": server.url, "databases": databases, "deliver": False})
    try:
        spool.write(points)
        assert spool.ship_until_empty(100)
        # influxd keeps the good part of a refused batch, and of a refused line nothing.
        assert set(stored_steps(server, databases[1], "r")) == set(range(1_000)) - bad
        letters = spool._file.dead_letters(10)
        assert {decode_batch(letter.body)[0].fields["step"] for letter in letters} == bad
        assert all("conflict" in letter.reason for letter in letters)
        server.query('DROP SERIES FROM "train" WHERE "run" = \'x\'', databases[1])
        assert spool._file.resend(None) == len(bad)
        spool.ship_until_empty(100)
        stats = spool.stats()
        assert stats.waiting == 0 and stats.delivered + stats.dead_letters == 1_000
    finally:
        spool.close()


def test_a_backlog_older_than_the_retention_is_counted_and_what_is_younger_arrives(server, tmp_path):
    databases = server.make_databases()
    server.query(f'ALTER RETENTION POLICY autogen ON "{databases[1]}" DURATION 1h SHARD DURATION 1h')
    now_ns = time.time_ns()
    old = [replace(point("r", number), time_ns=now_ns - 86_400 * 10**9 + number) for number in range(3_000)]
    new = [replace(point("r", number), time_ns=now_ns - 60 * 10**9 + number) for number in range(3_000, 3_500)]
    spool = open_spool({"spool": str(tmp_path / "a.spool"), "url": server.url, "databases": databases, "deliver": False})
    try:
        spool.write([*old, *new])
        assert spool.ship_until_empty(100)
        stats = spool.stats()
        assert sorted(stored_steps(server, databases[1], "r")) == list(range(3_000, 3_500))
        assert (stats.delivered, stats.dead_letters) == (500, 3_000)
    finally:
        spool.close()


def test_memory_stays_flat_while_two_hundred_thousand_points_wait(server, start_writer, tmp_path):
    databases = server.make_databases()
    server.stop()
    writer = start_writer(url=server.url, databases=databases, run="r", batch=100, count=200_000, tell_memory=True)
    assert writer.is_done.wait(120)
    assert len(writer.memory) == 10
    assert max(writer.memory[1:]) - writer.memory[0] < FLAT_BYTES, writer.memory
    server.start()
    assert wait_until(lambda: count_rows(server, databases[1], "train", "step") == 200_000, 120)
    writer.end()
    assert spool_counters(tmp_path / "spool" / "a.spool")["waiting"] == 0
