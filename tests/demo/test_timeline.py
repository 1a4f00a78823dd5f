"""The timeline of the demo, drawn from small records."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from demo.record import Entry, Process, Record, ServerEvent, overlapping
from demo.timeline import draw

MS = 1_000_000
SECOND = 1_000 * MS


class Elements(HTMLParser):
    """The start tags of a page: their names and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        found = [attributes for _, attributes in self.found]
        return [each for each in found if name in (each.get("class") or "").split()]


def update(asked: int, begins: int, ends: int, wrote: int, fence: int | None = None) -> Entry:
    """An update with times in milliseconds."""
    entry = {"asked": asked * MS, "from": begins * MS, "to": ends * MS, "wrote": wrote}
    if fence is not None:
        entry |= {"fence": fence, "valid_until": (begins + 5_000) * MS}
    return entry


def small_record() -> Record:
    """A run of two seconds with three updates, an error, a kill and a freeze."""
    python: list[Entry] = [
        update(100, 110, 120, 1, 1001),
        update(121, 131, 141, 3, 1003),
        {"asked": 500 * MS, "at": 900 * MS, "error": "no quorum"},
    ]
    return Record(
        locked=True,
        began=0,
        ended=2 * SECOND,
        servers=3,
        events=[
            ServerEvent(500 * MS, 2, "killed"),
            ServerEvent(1_000 * MS, 3, "frozen"),
            ServerEvent(1_500 * MS, 2, "restarted, empty"),
        ],
        processes=[
            Process("Python threads", python),
            Process("Node.js 1", [update(90, 121, 130, 2, 1002)]),
        ],
        counter=3,
    )


def bars(page: str) -> set[str]:
    return {each["title"] or "" for each in Elements(page).of_class("held") if "title" in each}


def test_each_update_has_a_bar_with_its_wait_and_its_fence() -> None:
    page = draw(small_record())
    assert bars(page) == {
        "Python threads: wrote 1 in 10.0 ms, after a wait of 10.0 ms, with fence 1001",
        "Python threads: wrote 3 in 10.0 ms, after a wait of 10.0 ms, with fence 1003",
        "Node.js 1: wrote 2 in 9.0 ms, after a wait of 31.0 ms, with fence 1002",
    }
    assert Elements(page).of_class("waited")
    assert "The lock held: 3 updates, none lost" in page


def test_servers_are_down_from_a_kill_or_freeze_until_they_come_back() -> None:
    record = small_record()
    assert record.down(1) == []
    assert record.down(2) == [("killed", (500 * MS, 1_500 * MS))]
    assert record.down(3) == [("frozen", (1_000 * MS, 2 * SECOND))]
    elements = Elements(draw(record))
    places = {
        name: [each["style"] for each in elements.of_class(name) if each.get("title")]
        for name in ("killed", "frozen")
    }
    assert places == {
        "killed": ["left:25.000%;width:50.000%;height:100%"],
        "frozen": ["left:50.000%;width:50.000%;height:100%"],
    }


def test_server_events_are_numbered_and_have_close_ups() -> None:
    page = draw(small_record())
    assert re.findall(r"</b> ([^<]*)<", page) == [
        "0.5 s: server 2 is killed",
        "1.0 s: server 3 is frozen",
        "1.5 s: server 2 is restarted, empty",
    ]
    assert page.count("<h2>Close-up: server ") == 3


def test_without_overlap_nothing_is_red() -> None:
    page = draw(small_record())
    assert "two or more at work" not in page
    # One is in the legend.
    assert len(Elements(page).of_class("overlap")) == 1


def test_overlapping_updates_are_red() -> None:
    record = small_record()
    late = Process("Node.js 1", [update(90, 118, 130, 1, 1002)])
    record = replace(record, processes=[record.processes[0], late], counter=2)
    assert overlapping(record.updates) == [(118 * MS, 120 * MS)]
    assert (record.overlaps, record.lost) == (1, 1)
    page = draw(record)
    assert "The lock FAILED" in page
    assert "two or more at work" in page
    assert "the first time that two are at work at once" in page
    red = {each.get("title") or "" for each in Elements(page).of_class("overlap")} - {""}
    assert sorted(title.split(",")[0] for title in red) == [
        "Node.js 1: wrote 1 in 12.0 ms",
        "Python threads: wrote 1 in 10.0 ms",
    ]


def test_an_update_within_a_longer_one_does_not_hide_the_next_overlap() -> None:
    spans = overlapping([update(0, 0, 100, 1), update(0, 10, 20, 1), update(0, 30, 40, 1)])
    assert spans == [(10 * MS, 20 * MS), (30 * MS, 40 * MS)]


def test_a_fence_that_does_not_increase_is_marked() -> None:
    record = small_record()
    assert record.fences_not_increased == 0
    same = Process("Node.js 1", [update(90, 121, 130, 2, 1001)])
    record = replace(record, processes=[record.processes[0], same])
    assert record.fences_not_increased == 1
    assert any(tag == "i" and each["class"] == "bad" for tag, each in Elements(draw(record)).found)


def test_without_the_lock_no_fence_and_no_wait_is_shown() -> None:
    processes = [
        Process("Python threads", [update(100, 100, 110, 1)]),
        Process("Node.js 1", [update(105, 105, 112, 1)]),
    ]
    page = draw(replace(small_record(), locked=False, processes=processes, counter=1))
    assert "Without the lock, 1 of 2 updates were lost." in page
    assert "fence" not in re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)
    assert not Elements(page).of_class("waited")
    assert len(bars(page)) == 2


def test_a_close_up_explains_the_lines_of_a_process() -> None:
    record = small_record()
    assert "each process has one line." in draw(record)
    tasks = Process("Python threads", [update(100, 110, 120, 1, 1001), update(105, 131, 141, 3, 3)])
    text = "each process has up to 2 lines: one for each thread or task that"
    assert f"{text} waits for the lock or holds it." in draw(replace(record, processes=[tasks]))
    assert f"{text} is at work." in draw(replace(record, locked=False, processes=[tasks, tasks]))


def test_a_narrow_screen_shows_neither_numbers_in_bars_nor_a_sentence_about_them() -> None:
    page = draw(small_record())
    sentence = "The number in a bar is what the update wrote to the counter."
    assert page.count(sentence) == page.count(f'<span class="wide"> {sentence}') > 0
    [narrow] = re.findall(r"@media \(max-width: 700px\) \{(.*?\})\s*\}", page, re.DOTALL)
    assert ".held { font-size: 0 }" in narrow
    assert re.search(r"\.wide,[^{]*\{ display: none \}", narrow)


def test_text_is_escaped() -> None:
    hostile = "<script>alert('\"&')</script>"
    error = {"asked": 0, "at": 900 * MS, "error": hostile}
    process = Process(f"Python {hostile}", [update(100, 110, 120, 1, 1), error])
    page = draw(replace(small_record(), processes=[process], counter=1))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert all(tag != "script" for tag, _ in Elements(page).found)


def test_the_page_needs_no_other_file() -> None:
    page = draw(small_record())
    assert not re.search(r"https?:|url\(|@import|<link|<script|src=", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


@pytest.mark.parametrize("locked", [True, False])
def test_an_interrupted_run_without_an_update_can_be_drawn(locked: bool) -> None:
    record = Record(
        locked=locked,
        began=0,
        ended=1,
        servers=3,
        events=[],
        processes=[Process("Python threads", [])],
        counter=0,
        interrupted=True,
    )
    assert "The run was interrupted: 0 updates so far, 0 of them lost." in draw(record)
