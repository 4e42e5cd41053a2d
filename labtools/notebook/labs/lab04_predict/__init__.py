"""The prediction game: rounds drawn from records, played and scored."""
