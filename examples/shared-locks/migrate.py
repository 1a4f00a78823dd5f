"""Adds a column to the table of bookings, in the way of a long migration: with a new table.

Run it with `quorlock run schema -- python migrate.py`.
"""

import time

import bookings

with bookings.transaction() as database:
    database.execute("ALTER TABLE bookings RENAME TO old_bookings")
time.sleep(0.2)  # here, a worker would find no table
with bookings.transaction() as database:
    database.execute("CREATE TABLE bookings (amount INTEGER, currency TEXT DEFAULT 'EUR')")
    database.execute("INSERT INTO bookings (amount) SELECT amount FROM old_bookings")
    database.execute("DROP TABLE old_bookings")
print("migrated")
