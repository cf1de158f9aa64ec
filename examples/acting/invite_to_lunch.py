"""A model invites to lunch and moves it; a person takes the move back, and then the invitation.

    python examples/acting/invite_to_lunch.py                               # in a Radicale of its own, see below
    python examples/acting/invite_to_lunch.py --radicale PYTHON             # which this Python has
    CALDAV_PASSWORD=... python examples/acting/invite_to_lunch.py --url https://cal.example.org --user me
    python examples/acting/invite_to_lunch.py --endpoint URL --model NAME   # proposals of a model, at any OpenAI server

Without --url it starts a calendar server on this machine (`pip install radicale`), and stops it. At a server of yours
it works in a calendar that it makes, and removes that at the end; mails that the server sends to people who are invited
are not taken back. Needs the extra `runtime`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from local_servers import command_of, radicale_running
from proposing import have_proposed, in_a_line, options_of
from services import answer_of, key_for, session_with

from autoclave.core import InputError
from autoclave.runtime.policy import Grant
from autoclave.runtime.session import Session

CALENDAR = "autoclave-example"
TASK = (
    "Invite ada@example.com and bob@example.com to an hour of lunch on 26 November 2026, as lunch.ics in the calendar "
    f"{CALENDAR} of the user {{user}} at the service `calendar`, at the first time from 12:00 that is free there. When "
    "that is done, move it by half an hour: Bob's train is late."
)


def event(uid: str, summary: str, begins: str, ends: str, *guests: str) -> str:
    """An event of 26 November 2026 as iCalendar has it (RFC 5545)."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Autoclave//examples//EN", "BEGIN:VEVENT", f"UID:{uid}"]
    lines += ["DTSTAMP:20261124T090000Z", f"DTSTART:20261126T{begins}00Z", f"DTEND:20261126T{ends}00Z"]
    lines += [f"SUMMARY:{summary}", *(f"ATTENDEE;RSVP=TRUE:mailto:{guest}" for guest in guests)]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""])


def recorded(user: str) -> list[dict[str, Any]]:
    """What a model proposed for this task once. It also removes what is in the way, which nothing permits."""
    guests, place = ("ada@example.com", "bob@example.com"), {"user": user, "calendar": CALENDAR}
    first, second = (event("lunch", "Lunch", *times, *guests) for times in (("1230", "1330"), ("1300", "1400")))
    proposed: list[tuple[str, dict[str, str]]] = [
        ("get_calendar", {}),
        ("put_item", {"name": "lunch.ics", "body": first}),
        ("delete_item", {"name": "review.ics"}),
        ("put_item", {"name": "lunch.ics", "body": second}),
    ]
    return [
        {"do": "request", "service": "calendar", "operation": name, "arguments": {**place, **each}}
        for name, each in proposed
    ]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--radicale", metavar="PYTHON", default="", help="a Python that has Radicale, to start one")
    parser.add_argument("--url", help="of a CalDAV server that runs; the password is taken from CALDAV_PASSWORD")
    parser.add_argument("--user", help="there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, a_calendar(options, Path(place)) as calendar:
        key = key_for("calendar", calendar.url, calendar.password, place="basic")
        settings = {"catalogue": "radicale", "user": calendar.user}
        with session_with(Path(place), calendar.url, key, **settings) as session:
            invite_and_take_back(session, calendar, options)


def invite_and_take_back(session: Session, calendar: Calendar, options: argparse.Namespace) -> None:
    """The story."""
    ours = f"services/calendar/*/{quote(calendar.user, safe='')}/{CALENDAR}/**"
    session.permissions.grant(Grant(resources=(ours,), verbs=("read", "create", "modify")))
    session.savepoint("before")
    before = calendar.show("before")
    have_proposed(session, options, TASK.format(user=calendar.user), recorded(calendar.user))
    calendar.show("after that")
    changes = [each for each in session.journal.standings() if session.difference(each.action)]
    if len(changes) > 1:
        print(f"\nBob's train is in time, so a person takes back the last, {changes[-1].action}:")
        print(*(f"    {line}" for line in session.difference(changes[-1].action)), sep="\n")
        session.undo(changes[-1].action)
        calendar.show("without the move")
    session.undo_to("before")
    after = calendar.show("after all was taken back")
    print(f"\nthe calendar is as it was: {after == before}")
    print(f"the journal is as it was written: {not session.audit()}")


# --- The server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calendar:
    """A calendar as somebody else sees it: with a client that shares nothing with what is shown here."""

    url: str
    user: str
    password: str = field(repr=False)

    def asked(self, method: str, name: str = "", body: str | None = None) -> str:
        """What the server says, as it says it."""
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}", "Content_Type": "text/calendar; charset=utf-8"}
        return answer_of(method, f"{self.url}/{quote(self.user)}/{CALENDAR}/{name}", body, **headers)

    def show(self, when: str) -> list[str]:
        """Print the events; all lines of the calendar, which has no order."""
        whole = re.sub(r"\r?\n[ \t]", "", self.asked("GET"))  # long lines are folded
        print(f"\nin the calendar, {when}:")
        print(*sorted(map(told, re.findall("BEGIN:VEVENT.*?END:VEVENT", whole, re.DOTALL))), sep="\n")
        return sorted(whole.splitlines())


def told(event: str) -> str:
    """An event in a line: from when to when, what, and with whom."""
    values = {"DTSTART": "", "DTEND": "", "SUMMARY": ""}
    guests: list[str] = []
    for line in event.splitlines():
        name, _, value = line.partition(":")
        if line.upper().startswith("ATTENDEE"):
            guests.append(value.removeprefix("mailto:"))
        else:
            values[name.partition(";")[0]] = value
    begins, ends = (re.sub(r".*T(\d\d)(\d\d).*", r"\1:\2", values[name]) for name in ("DTSTART", "DTEND"))
    return f"    {begins}{' to ' if ends else ''}{ends}  {', '.join([values['SUMMARY'], *guests])}"


@contextlib.contextmanager
def a_calendar(options: argparse.Namespace, folder: Path) -> Iterator[Calendar]:
    """A calendar with a day that is already busy, for the length of the block."""
    with contextlib.ExitStack() as opened:
        if options.url:
            password = os.environ.pop("CALDAV_PASSWORD", "")
            if not options.user or not password:
                raise InputError(f"--url {options.url}: give --user NAME, and put the password into CALDAV_PASSWORD")
            calendar = Calendar(options.url.rstrip("/"), options.user, password)
        else:
            command, place = command_of("radicale", options.radicale), folder / "radicale"
            print("a Radicale begins on this machine", flush=True)
            place.mkdir()
            port = opened.enter_context(radicale_running(command, place))
            calendar = Calendar(f"http://localhost:{port}", "model", "any will do here")
        calendar.asked("MKCALENDAR")
        opened.callback(calendar.asked, "DELETE")
        calendar.asked("PUT", "standup.ics", event("standup", "Stand-up", "0900", "0915"))
        calendar.asked("PUT", "review.ics", event("review", "Review", "1130", "1230"))
        yield calendar


if __name__ == "__main__":
    in_a_line(main)
