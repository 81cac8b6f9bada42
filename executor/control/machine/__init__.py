"""Pure rules of a broker's lifecycle and of its reports to the controller."""
