"""How accurate the forecasts were."""
