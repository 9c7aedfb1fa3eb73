"""The trips of `runlog demo` (cli/demo/src/model.rs): an agent's next call follows from its trip and its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

_MASK = (1 << 64) - 1
_AIRPORTS = ("BER", "LIS", "OSL", "VIE", "MAD", "WAW", "ATH", "CPH", "DUB", "PRG", "ZRH", "RIX")
_FIRST = ("Ada", "Bo", "Chidi", "Dilek", "Edda", "Femi", "Grace", "Hana", "Ines", "Jonas")
_LAST = ("Achebe", "Berg", "Costa", "Duarte", "Eriksen", "Fischer", "Goyal", "Haddad", "Ito", "Jansen")
_PRICE_POLLS = 2


class _Dice:
    """SplitMix64, as the demo throws it."""

    def __init__(self, seed: int, stream: int) -> None:
        self._state = seed
        first = self._throw()
        self._state = stream
        second = self._throw()
        self._state = first ^ ((second << 32 | second >> 32) & _MASK)

    def _throw(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return z ^ z >> 31

    def below(self, sides: int) -> int:
        return (self._throw() >> 32) * sides >> 32


@dataclass(frozen=True)
class Call:
    """A call that the model asks for."""

    tool: str
    arguments: dict[str, Any]
    key: str | None = None


@dataclass(frozen=True)
class Step:
    """The model's text and calls; no calls at the end."""

    says: str
    calls: tuple[Call, ...] = ()


class Trip:
    """Trip `number` of a demo with this seed."""

    def __init__(self, seed: int, number: int, keyed: bool) -> None:
        dice = _Dice(seed, number)
        self.number, self.keyed, self.run_id = number, keyed, f"trip-{number:04}"
        begin = dice.below(len(_AIRPORTS))
        end = (begin + 1 + dice.below(len(_AIRPORTS) - 1)) % len(_AIRPORTS)
        dice.below(2)
        first, last = _FIRST[dice.below(len(_FIRST))], _LAST[dice.below(len(_LAST))]
        self.passenger = f"{first} {last} ({number:04})"
        self.begin, self.end = _AIRPORTS[begin], _AIRPORTS[end]
        self.date = f"2027-{1 + dice.below(12):02}-{1 + dice.below(28):02}"
        self.room = dice.below(3) == 0

    def wish(self) -> str:
        """The user's first message."""
        room = " and a room for the night" if self.room else ""
        return f"{self.passenger} needs a flight from {self.begin} to {self.end} on {self.date}{room}."

    def next(self, messages: list[Message]) -> Step:
        """The model's next step, given the conversation."""
        flights = _found(messages, "search_flights")
        if flights is None:
            return self._search()
        booked = _heard(messages, "book_flight")
        refused = sum("error" in heard for _, heard in booked)
        if len(booked) == refused:
            if refused < len(flights):
                return self._book(flights[refused]["flight"], messages)
            return Step(f"No seat from {self.begin} to {self.end} that day.")
        rooms = _found(messages, "search_rooms")
        if self.room and rooms and not _heard(messages, "book_room"):
            room = rooms[0]["room"]
            arguments = {"room": room, "date": self.date, "guest": self.passenger}
            return Step(f"The flight is booked; {room} too.", (self._booking("book_room", room, arguments),))
        return Step(f"{self.passenger} flies to {self.end}. Have a good trip!")

    def _search(self) -> Step:
        where = {"from": self.begin, "to": self.end, "date": self.date}
        calls = [Call("search_flights", where)]
        if self.room:
            calls.append(Call("search_rooms", {"city": self.end, "date": self.date}))
        return Step("Let me see what there is.", tuple(calls))

    def _book(self, flight: str, messages: list[Message]) -> Step:
        polls = sum(arguments["flight"] == flight for arguments, _ in _heard(messages, "get_price"))
        if polls < _PRICE_POLLS:
            says = f"What does {flight} cost?" if polls == 0 else "Is that still the price?"
            return Step(says, (Call("get_price", {"flight": flight, "date": self.date}),))
        arguments = {"flight": flight, "date": self.date, "passenger": self.passenger}
        return Step(f"I take {flight}.", (self._booking("book_flight", flight, arguments),))

    def _booking(self, tool: str, item: str, arguments: dict[str, Any]) -> Call:
        return Call(tool, arguments, f"{self.run_id}/{item}/{self.date}" if self.keyed else None)

    def request(self, call: Call) -> dict[str, Any]:
        """The request to the desk for a call."""
        args = call.arguments
        match call.tool:
            case "search_flights":
                return {"op": "flights", **args}
            case "search_rooms":
                return {"op": "rooms", **args}
            case "get_price":
                return {"op": "price", "item": args["flight"], "date": args["date"]}
            case _:
                item = args.get("flight") or args["room"]
                return {"op": "book", "item": item, "date": args["date"], "customer": self.passenger, "key": call.key}


def _heard(messages: list[Message], tool: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(m["arguments"], m["heard"]) for m in messages if m["role"] == "tool" and m["tool"] == tool]


def _found(messages: list[Message], tool: str) -> list[Any] | None:
    return next((heard["result"] for _, heard in _heard(messages, tool) if "result" in heard), None)
