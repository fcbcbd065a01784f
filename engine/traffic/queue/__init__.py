"""Who is next: calls wait in classes of priority, and within a class by the least service of their tenant."""
