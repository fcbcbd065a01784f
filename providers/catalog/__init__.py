"""What a dialect, a profile and a provider are; the known ones; and which provider a request goes to.

A `Dialect` is a value with the functions of one wire format. A `Profile` is a row of data: the dialect, the address,
the variables of the key, and where the server departs from the dialect. A `Provider` is a profile with the base URL and
the key that a program gave. `profiles.py` is the table. `registry.py` imports a dialect when it is first used.

`StreamMachine` (`dialect.py`) is the base class of all stream machines: `feed` and `end` catch what goes wrong, match
templates, and join characters that a server cut. `JSONStream` (`json_stream.py`) is that of streams whose events are
JSON objects, and reads what gateways put beside those objects. A dialect writes one method for each of its wire events.
"""
