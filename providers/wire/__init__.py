"""What the dialects share: the dialect as a value, the answer under construction, and rules that several wires have."""
