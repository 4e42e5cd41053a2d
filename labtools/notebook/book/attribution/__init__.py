"""What a method contributed."""
