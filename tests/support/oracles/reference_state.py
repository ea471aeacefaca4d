"""A second, naive implementation of state that expires, to hold the real one against. It cleans nothing in the background."""

from dataclasses import dataclass, field

LONG_MAX = 2**63 - 1


@dataclass
class Cell:
    value: object
    stamp: int | None
    ttl: int | None = None


@dataclass
class Reference:
    """One state of every key; `cells` is key -> sub-key -> Cell, in order of insertion."""

    update: str
    shows: bool
    event_time: bool
    by_watermark: bool
    ttl_ms: int
    cells: dict = field(default_factory=dict)
    now: int = 0
    watermark: int = 0
    event: int = 0
    next_place: dict = field(default_factory=dict)

    def dead(self, cell):
        clock = self.watermark if self.by_watermark else self.now
        if cell.stamp is None:
            return False
        own = self.ttl_ms if cell.ttl is None else cell.ttl
        return min(LONG_MAX, cell.stamp + own) <= clock

    def of(self, key):
        return self.cells.setdefault(key, {})

    def stamp_for(self, old, renews):
        """The stamp of an entry written or read now over a live `old`, None if there is none."""
        if self.update == "DISABLED":
            return None
        access = self.event if self.event_time else self.now
        if old is None:
            return access
        if not renews:
            return old.stamp
        return max(access, old.stamp) if self.event_time else access

    def write(self, key, sub, value, ttl=None):
        old = self.of(key).get(sub)
        live = None if old is None or self.dead(old) else old
        stamp = self.stamp_for(live, self.update in ("ON_CREATE_AND_WRITE", "ON_READ_AND_WRITE"))
        cell = Cell(value, stamp, None if self.update == "DISABLED" else ttl)
        if self.event_time and self.dead(cell):
            self.of(key).pop(sub, None)
        else:
            self.of(key)[sub] = cell

    def read(self, key, sub, ttl=None):
        """(whether there is something to see, its value); a live one gets a time to live of its own"""
        cell = self.of(key).get(sub)
        if cell is None:
            return False, None
        if self.dead(cell):
            del self.of(key)[sub]
            return self.shows, cell.value if self.shows else None
        if self.update in ("ON_READ", "ON_READ_AND_WRITE"):
            cell.stamp = self.stamp_for(cell, True)
        self.set_ttl(cell, ttl)
        return True, cell.value

    def set_ttl(self, cell, ttl):
        if ttl is not None and self.update != "DISABLED":
            cell.ttl = ttl

    # value

    def value_get(self, key, ttl=None):
        return self.read(key, None, ttl)[1]

    def value_update(self, key, value, ttl=None):
        if value is None:
            self.cells[key] = {}
        else:
            self.write(key, None, value, ttl)

    # reducing and aggregating

    def combine(self, key, combined, value, ttl=None):
        cell = self.of(key).get(None)
        hidden = cell is None or (self.dead(cell) and not self.shows)
        self.value_update(key, combined(None if hidden else cell.value, value), ttl)

    # list

    def list_get(self, key, n, ttl=None):
        cells = self.of(key)
        dead = [self.dead(cell) for cell in cells.values()]
        shown = [cell.value for cell, is_dead in zip(cells.values(), dead, strict=True) if self.shows or not is_dead]
        renews = self.update in ("ON_READ", "ON_READ_AND_WRITE")
        if (renews or (ttl is not None and self.update != "DISABLED")) and not all(dead):
            live = {place: cell for place, cell in cells.items() if not self.dead(cell)}
            for cell in live.values():
                if renews:
                    cell.stamp = self.stamp_for(cell, True)
                self.set_ttl(cell, ttl)
            self.cells[key] = live
        reads_to_the_end = n is None or n > len(shown)
        if reads_to_the_end and all(dead):
            self.cells[key] = {}
        return shown[:n]

    def list_add(self, key, values, ttl=None):
        for value in values:
            cells = self.of(key)
            self.write(key, max(cells, default=-1) + 1, value, ttl)

    def list_update(self, key, values, ttl=None):
        self.cells[key] = {}
        self.list_add(key, values, ttl)

    # map

    def map_entries(self, key, drop=()):
        seen = []
        for sub in list(self.of(key)):
            cell = self.of(key)[sub]
            dead = self.dead(cell)
            shown, value = self.read(key, sub)
            if shown:
                seen.append((sub, value))
                if sub in drop and not dead:
                    del self.of(key)[sub]
        return seen
