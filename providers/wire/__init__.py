"""What the dialects share: the answer under construction, templates of deltas, and rules that several wires have."""
