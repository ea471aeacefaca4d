"""What the shop's database goes through: changes of all kinds, by two sessions at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from postgres import Session, upsert

TABLES = """
CREATE TABLE customers (
    customer_id bigint PRIMARY KEY, name text NOT NULL, email text, balance numeric(14,2), born date, vip boolean NOT NULL, attrs jsonb,
    score double precision, updated_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'), loyalty_tier text DEFAULT 'basic');
ALTER TABLE customers REPLICA IDENTITY FULL;
CREATE TABLE orders (
    order_id bigint PRIMARY KEY, customer_id bigint, status text NOT NULL, total numeric(14,2), currency char(3), notes text,
    placed_at timestamptz NOT NULL DEFAULT now(), updated_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'), ship_on date, meta jsonb,
    discount numeric(14,2));
CREATE TABLE price_list (
    sku text PRIMARY KEY, price numeric(18,6) NOT NULL, valid_from timestamp(3), weight numeric);
"""
KEYS = {"customers": "customer_id", "orders": "order_id", "price_list": "sku"}
FIRST = 2_000
"""Rows of each table but the price list, before the connector takes its snapshot."""
FRESH = 1_000_000
"""Where keys begin that none has had."""
PAUSE_S = 0.05
LARGE = 400
"""Changes of a large transaction."""


class Load:
    """One session's changes. Two of them never wait for each other for ever: each has its own keys.

    Args:
        session: Takes the statements.
        number: 0 or 1. The first alone truncates.
    """

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._number = number
        self._chance = random.Random(number)
        self._fresh = FRESH + number
        self.has_phones = False
        self.n_transactions = 0

    def go_on(self, until: Callable[[], bool]) -> None:
        """Change rows until it is over."""
        kinds = {
            self._customers: 30,
            self._orders: 40,
            self.prices: 10,
            self._delete: 15,
            self._change_key: 10,
            self._delete_and_insert: 5,
            self._large: 1,
        }
        if self._number == 0:
            kinds[self._truncate] = 0.5
        while not until():
            [change] = self._chance.choices([*kinds], [*kinds.values()])
            self._session.send(*change())
            self.n_transactions += 1
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Wait until the database has done all."""
        self._session.close()

    def _id(self) -> int:
        return 2 * self._chance.randrange(FIRST // 2) + self._number

    def _next(self) -> int:
        self._fresh += 2
        return self._fresh

    def customer(self, key: int) -> str:
        """Write a customer."""
        chance = self._chance
        row = {
            "customer_id": key,
            "name": chance.choice(["", "Ana", "Bjørn", "李", "O'Neil", "\U0001d518nicode", "tab\there"]),
            "email": chance.choice([None, f"c{key}@example.org"]),
            "balance": f"{chance.uniform(-1e6, 1e6):.2f}",
            "born": chance.choice([None, f"19{chance.randrange(10, 99)}-02-03", "2000-02-29"]),
            "vip": chance.random() < 0.1,
            "attrs": chance.choice([None, '{"big": 9007199254740993}', '{"a": [1, 2.50]}']),
            "score": chance.choice([None, 0.1, 1e300, -2.5]),
            "updated_at": f"2026-01-{chance.randrange(1, 29):02d} 01:02:03.{chance.randrange(10**6):06d}",
        }
        if self.has_phones:
            row["phone"] = f"+47 {chance.randrange(10**8)}"
        return upsert("customers", "customer_id", row)

    def order(self, key: int) -> str:
        """Write an order."""
        chance = self._chance
        row = {
            "order_id": key,
            "customer_id": self._id(),
            "status": chance.choice(["new", "paid", "sent"]),
            "total": f"{chance.uniform(0, 1e4):.2f}",
            "currency": "NOK",
            "notes": chance.randbytes(3000).hex() if chance.random() < 0.5 else chance.choice([None, "short"]),
            "ship_on": chance.choice([None, "2026-12-24"]),
            "meta": chance.choice([None, '{"k": "v"}']),
        }
        return upsert("orders", "order_id", row)

    def _customers(self) -> list[str]:
        return [self.customer(key) for key in sorted({self._id() for _ in range(4)})]

    def _orders(self) -> list[str]:
        if self._chance.random() < 0.5:
            return [self.order(self._id())]
        # Long notes stay as they are, and are not sent.
        return [f"UPDATE orders SET status = 'again', discount = 1.5 WHERE order_id = {self._id()}" for _ in range(3)]

    def prices(self) -> list[str]:
        """Write a price."""
        chance = self._chance
        sku = f"{self._number}-{chance.randrange(60)}" if chance.random() < 0.95 else "" if self._number else "x"
        valid_from = f"2026-03-04 05:06:07.{chance.randrange(1000):03d}"
        row = {
            "sku": sku,
            "price": f"{chance.uniform(0, 99):.6f}",
            "valid_from": valid_from,
            "weight": "12345678901234567890.000000001",
        }
        return [upsert("price_list", "sku", row)]

    def _delete(self) -> list[str]:
        table, key = self._chance.choice([("customers", "customer_id"), ("orders", "order_id")])
        return [f"DELETE FROM {table} WHERE {key} = {self._id()}"]

    def _change_key(self) -> list[str]:
        old, fresh = self._id(), self._next()
        if self._chance.random() < 0.5:
            return [
                f"UPDATE orders SET order_id = {fresh} WHERE order_id = {old}",
                f"UPDATE customers SET customer_id = {fresh} WHERE customer_id = {old}",
            ]
        other, parked = self._id(), -1 - self._number
        swapped = [(old, parked), (other, old), (parked, other)] if other != old else []
        return [f"UPDATE customers SET customer_id = {to} WHERE customer_id = {at}" for at, to in swapped] or [
            "SELECT 1"
        ]

    def _delete_and_insert(self) -> list[str]:
        key = self._id()
        return [f"DELETE FROM orders WHERE order_id = {key}", self.order(key)]

    def _large(self) -> list[str]:
        return [f"UPDATE customers SET balance = balance + 1 WHERE customer_id % {FIRST // LARGE * 2} = {self._number}"]

    def _truncate(self) -> list[str]:
        return ["TRUNCATE price_list", *self.prices()]


def fill(session: Session) -> None:
    """Make the first rows."""
    for number in (0, 1):
        load = Load(session, number)
        for key in range(number, FIRST, 2):
            session.send(load.customer(key), load.order(key))
        for _ in range(50):
            session.send(*load.prices())
