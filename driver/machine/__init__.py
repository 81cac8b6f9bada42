"""Pure rules of the tab: its status, from the committed image and observations of the driver."""
