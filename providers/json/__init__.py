"""Reading and writing JSON. `json_values.py` is the only file in which `Any` appears."""
