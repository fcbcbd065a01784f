"""Reading and writing JSON. `json_values.py` is the only file in which `Any` appears.

What is sent is valid JSON or an error. What a server sends is read leniently: a getter returns `None`, or an empty
container, for a member that is absent, null or of another type. What a person wrote (arguments, lines of a batch) is
read strictly, by `object_reader.py`, whose errors name the member. Numbers that a parser would change, such as whole
numbers beyond 64 bits, keep their text (`exact_numbers.py`).
"""
