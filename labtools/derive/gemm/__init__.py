"""Matrix products, convolutions and mixtures of experts."""
