"""The labs' benches, one folder a lab: what it computes, and the view that shows it."""
